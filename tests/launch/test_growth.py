"""When and where an elastic job starts more ranks, and which hosts it finds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tfhvd.launch.errors import UsageError
from tfhvd.launch.options.parse import parse
from tfhvd.launch.placement import discovery
from tfhvd.launch.state.hosts import Host, place
from tfhvd.launch.state.scaling import Autoscaler

A, B = Host("a", 2), Host("b", 2, user="joe")


def autoscaler(*hosts: Host, most: int | None = None) -> tuple[Autoscaler, discovery.Fixed]:
    """Of a job that has begun with two ranks on host a; a host is tried again after 1 to 8 s."""
    found = discovery.Fixed(hosts)
    return Autoscaler(found, place([A], 2), most, (1.0, 8.0)), found


def test_ranks_are_placed_where_there_are_slots():
    assert place([A, B], 3) == [(A, [0, 1]), (B, [2])]
    assert place([A, B], 2) == [(A, [0, 1])]


def test_a_job_grows_where_hosts_have_room():
    grows, found = autoscaler(A)
    assert grows.due(0.0) == []
    found.hosts = (A, B)
    assert grows.due(1.0) == [(B, [2, 3])]
    assert grows.due(1.0) == [], "they are on their way"


def test_a_job_has_no_more_ranks_than_it_may():
    grows, _ = autoscaler(A, B, Host("c", 8), most=5)
    assert grows.due(0.0) == [(B, [2, 3]), (Host("c", 8), [4])]


def test_a_lost_rank_is_replaced_after_a_pause_that_grows():
    grows, _ = autoscaler(A)
    grows.ended(1, 10.0, failed=True)
    assert grows.due(10.9) == []
    assert grows.due(11.1) == [(A, [2])]
    grows.ended(2, 20.0, failed=True)
    assert grows.due(21.9) == []
    assert grows.due(22.1) == [(A, [3])]
    for rank in range(3, 9):
        grows.ended(rank, 30.0 + 9 * rank, failed=True)
        assert grows.due(30.0 + 9 * rank + 8.1) == [(A, [rank + 1])], "8 s at most"


def test_a_host_that_was_well_for_long_has_a_clean_record():
    grows, _ = autoscaler(A)
    for rank, failed_at in ((1, 0.0), (2, 10.0), (3, 20.0)):
        grows.ended(rank, failed_at, failed=True)
        grows.due(failed_at + 9)
    grows.ended(4, 200.0, failed=True)
    assert grows.due(201.1) == [(A, [5])]


def test_a_rank_that_has_come_to_its_end_needs_no_pause():
    grows, _ = autoscaler(A)
    grows.ended(0, 5.0, failed=False)
    assert grows.due(5.0) == [(A, [2])]


def script(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "hosts.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return (str(path),)


def ticked(found: discovery.Command, warned: list[str], until: str) -> None:
    """Until it has hosts, or has warned."""
    deadline = time.monotonic() + 20
    while not (warned if until == "warned" else found.hosts):
        assert time.monotonic() < deadline
        found.tick(time.monotonic())
        time.sleep(0.01)


def test_the_hosts_that_a_script_prints(tmp_path):
    warned: list[str] = []
    words = script(tmp_path, "echo a:4; echo joe@b; echo; echo '# none'")
    found = discovery.script(words, 3, warned.append)
    assert found.hosts == ()
    ticked(found, warned, "found")
    assert found.hosts == (Host("a", 4), Host("b", 3, user="joe")) and not warned
    found.close()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo a:4; exit 3", "has ended with exit code 3"),
        ("echo a:x", "line 1: 'a:x'"),
    ],
)
def test_a_script_that_fails_is_warned_of_once_and_changes_nothing(tmp_path, text, says):
    warned: list[str] = []
    found = discovery.script(script(tmp_path, text), 1, warned.append)
    found.hosts = (A,)
    ticked(found, warned, "warned")
    assert says in warned[0] and found.hosts == (A,)
    until = time.monotonic() + 1.3  # it runs once more
    while time.monotonic() < until:
        found.tick(time.monotonic())
    assert len(warned) == 1
    found.close()


def test_a_script_that_never_ends_is_ended(tmp_path):
    found = discovery.script(script(tmp_path, "exec sleep 600"), 1, print)
    found.tick(time.monotonic())
    process = found._process
    assert process is not None
    found.close()
    assert process.poll() is not None


def test_a_host_file_that_is_written_anew(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("a slots=2\n")
    warned: list[str] = []
    found = discovery.HostFile(path, warned.append)
    assert found.hosts == (A,)
    path.write_text("a slots=2\nb slots=2\n")
    found.tick(100.0)
    assert found.hosts == (A, Host("b", 2))
    path.write_text("a slots=none\n")
    found.tick(100.5)
    assert not warned, "it is not looked at all the time"
    found.tick(102.0)
    assert len(warned) == 1 and len(found.hosts) == 2


def test_options(tmp_path):
    words = script(tmp_path, "echo a:4")
    job = parse(["--host-discovery-script", f"{words[0]} --all", "--max-np", "6", "true"])
    assert (job.num_proc, job.max_np, job.elastic, job.grows) == (6, 6, True, True)
    assert job.discovery == (words[0], "--all")
    job = parse(
        [
            "-np",
            "2",
            "--max-np",
            "4",
            "--blacklist-cooldown-range",
            "5",
            "60",
            "--reset-limit",
            "3",
            "true",
        ]
    )
    assert (job.pauses, job.reset_limit, job.transport) == ((5.0, 60.0), 3, "tcp")
    assert not parse(["-np", "2", "--elastic", "true"]).grows
    for line, says in (
        ("-np 4 --max-np 3 true", "--max-np 3 is less than the 4 ranks"),
        ("-np 2 --max-np 4 --blacklist-cooldown-range 5 1 true", "the smaller one first"),
        ("-np 2 --host-discovery-script /none true", "a script that can be run"),
        (f"-np 2 -H a:2 --host-discovery-script {words[0]} true", "-H exclude each other"),
        (f"--pods 2 --host-discovery-script {words[0]} true", "and --pods exclude each other"),
    ):
        with pytest.raises(UsageError, match=says):
            parse(line.split())
