"""Elastic jobs whose launcher is killed: one of its two processes, or both."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import children
import pytest
from launching import read_until, script, started, wait_until_gone
from mpi import wait_for

from tfhvd.launch.failover.standby import LocalSnapshot
from tfhvd.launch.failover.takeover import COME_BY, Handover, Takeover
from tfhvd.launch.state.rank_state import Ending, Rank
from tfhvd.launch.state.roster import Roster
from tfhvd.launch.state.supervisor_config import SupervisorConfig, Timeouts
from tfhvd.protocol import messages

pytestmark = pytest.mark.usefixtures("preloaded_jobs")


def test_a_journal_holds_what_was_written_last():
    snapshot = LocalSnapshot()
    try:
        assert snapshot.read() is None
        for state in ("a", "b" * 1000, "c" * 10, "d" * 5000, "e" * 20, {"f": [1]}):
            snapshot.write(state)
            assert snapshot.read() == state
    finally:
        snapshot.close()


def test_whose_agent_does_not_come_again_is_lost():
    snapshot = LocalSnapshot()
    try:
        ranks = {number: Rank(number, "a") for number in range(3)}
        ranks[1].end(Ending(code=0), 0.0)
        snapshot.write(Handover(Roster(3, 1), ranks=ranks))
        takeover = Takeover(
            SupervisorConfig(3, "secret", Timeouts(1, 1, 1)), 100.0, snapshot=snapshot
        )

        def comes(number: int) -> bool:
            return takeover.comes(number, "", here=True, again=True)

        assert [comes(number) for number in (0, 1, 7)] == [True, True, False]
        assert not comes(0), "it has come"
        assert takeover.overdue(99.0 + COME_BY) == set()
        assert takeover.overdue(101.0 + COME_BY) == {2}
        assert takeover.overdue(102.0 + COME_BY) == set(), "each once"
    finally:
        snapshot.close()


def lines(data: bytes | None) -> list[str]:
    return [
        str(messages.read_json(payload)["line"])
        for _, payload in messages.Reader().feed(data or b"")
    ]


def members() -> Roster:
    three = Roster(3, 1)
    for rank in range(3):
        three.listens(rank, f"{'abc'[rank]}:{rank}")
        three.ready(rank, "tfhvd 1")
    return three


def test_members_learn_of_a_roster_that_a_launcher_could_not_write_down():
    before, after = members(), members()
    before.comes(3, "d:3", {0: "a", 1: "a", 2: "a", 3: "a"})
    before.ready(3, "tfhvd 1")
    [newest] = lines(before.end(1, [0, 2], failed=True))
    newest, _ = lines(before.let_in(0))
    assert lines(after.comes_again(0, "a:0", "")) == ["waiting 0\n"]
    assert lines(after.comes_again(2, "c:2", newest)) == ["waiting 0\n"], "it knows"
    assert after.present == [0, 2, 3] and after.lost == {1} and after.most == 3
    assert lines(after.comes_again(3, "d:3", "")) == [newest, "waiting 0\n"]
    [next_one] = lines(after.end(0, [2, 3], failed=True))
    assert re.fullmatch(r"roster 3 2 [0-9a-f]{32} 2=c:2 3=d:3\n", next_one)


def test_members_tell_who_comes_again_what_it_has_missed():
    three = members()
    [roster] = lines(three.end(1, [0, 2], failed=True))
    assert lines(three.comes_again(0, "a:0", "")) == [roster, "waiting 0\n"]
    assert lines(three.comes_again(2, "c:2", roster)) == ["waiting 0\n"]
    [over] = lines(three.end(2, [0], failed=False))
    assert lines(three.comes_again(0, "a:0", roster)) == [over]


TRAINS = """
import tensorflow as tf
import tfhvd as hvd
hvd.init()
start, steps, ends = hvd.rank(), 0, False
print(f"rank {start} is {os.getpid()}\\n", end="", flush=True)
while not ends:
    total = hvd.allreduce(tf.fill([100], 2.0 ** start), op=hvd.Sum, name="gradient")
    ends = hvd.allreduce(float(os.path.exists(sys.argv[1])), op=hvd.Max, name="ends") > 0
    steps += 1
    time.sleep(0.005)
rows = hvd.allgather(tf.stack([total[0], float(steps)])[tf.newaxis]).numpy()
assert (rows == rows[0]).all(), rows
print(f"{start}: sum {total[0]:g}\\n", end="", flush=True)
"""


def test_a_job_goes_on_where_its_supervisor_is_killed_and_a_rank_is_lost_after_that(tmp_path):
    path, end = script(tmp_path, TRAINS), tmp_path / "end"
    with started("-np", 2, "--elastic", sys.executable, path, end) as process:
        pids = {}
        while len(pids) < 2:
            found = re.search(r"rank (\d) is (\d+)", process.stdout.readline())
            pids[int(found[1])] = int(found[2])
        os.kill(children.supervisor_of(process.pid), signal.SIGKILL)
        read_until(process.stderr, "the process that supervised the job was killed")
        os.kill(pids[0], signal.SIGKILL)
        read_until(process.stderr, r"rank 0 on host .* killed by SIGKILL .* continues with 1 of 2")
        end.touch()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "1: sum 2\n" in out, out
    assert wait_until_gone(str(path)) == []


@pytest.mark.thorough
def test_a_job_goes_on_whenever_its_supervisor_is_killed(tmp_path):
    """Also where ranks are lost before, meanwhile, and after; others are started in their place."""
    path, end = script(tmp_path, TRAINS), tmp_path / "end"
    words = ("-np", 3, "--min-np", 1, "--max-np", 3, sys.executable, path, end)
    with started(*words) as process:
        supervisor = children.supervisor_of(process.pid)
        pids = {}
        while len(pids) < 3:
            found = re.search(r"rank (\d) is (\d+)", process.stdout.readline())
            pids[int(found[1])] = int(found[2])
        os.kill(supervisor, signal.SIGKILL)
        read_until(process.stderr, "the process that supervised the job was killed")
        os.kill(pids[1], signal.SIGKILL)
        read_until(process.stderr, r"rank 1 on host .* killed by SIGKILL .* continues with 2 of 3")
        read_until(process.stderr, r"rank 3 on host .* cannot join")
        supervisor = children.supervisor_of(process.pid)
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(pids[2], signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{pids[2]}").exists())
        os.kill(supervisor, signal.SIGKILL)
        read_until(process.stderr, "the process that supervised the job was killed")
        read_until(process.stderr, r"rank 2 on host .* killed by SIGKILL .* continues with 1 of 3")
        read_until(process.stderr, r"rank 4 on host .* cannot join")
        end.touch()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "0: sum 1\n" in out, out
    assert wait_until_gone(str(path)) == []


QUIET = (
    'print("up\\n", end="", flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n'
)


def test_the_exit_code_is_known_to_the_next_supervisor(tmp_path):
    path, end = (
        script(tmp_path, QUIET + 'sys.exit(3 * int(os.environ["TFHVDRUN_RANK"]))\n'),
        tmp_path / "e",
    )
    words = ("-np", 2, "--min-np", 2, sys.executable, path, end)
    with started(*words) as process:
        for _ in range(2):
            assert "up" in process.stdout.readline()
        os.kill(children.supervisor_of(process.pid), signal.SIGKILL)
        read_until(process.stderr, "process .* takes over")
        end.touch()
        _, err = process.communicate(timeout=30)
    assert process.returncode == 3, err
    assert re.search(r"rank 1 on host .* failed first: exit code 3", err), err
    assert wait_until_gone(str(path)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_job_whose_supervisor_was_killed(tmp_path, number):
    path = script(tmp_path, QUIET)
    with started("-np", 2, "--elastic", sys.executable, path, tmp_path / "never") as process:
        for _ in range(2):
            assert "up" in process.stdout.readline()
        os.kill(children.supervisor_of(process.pid), signal.SIGKILL)
        read_until(process.stderr, "process .* takes over")
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    assert wait_until_gone(str(path)) == []


def test_a_job_whose_keeper_is_killed_goes_on_and_ends_with_the_other_one(tmp_path):
    path, end = script(tmp_path, QUIET + 'print("end\\n", end="")\n'), tmp_path / "end"
    with started("-np", 2, "--elastic", sys.executable, path, end) as process:
        for _ in range(2):
            assert "up" in process.stdout.readline()
        supervisor = children.supervisor_of(process.pid)
        process.kill()
        read_until(process.stderr, f"continues the job alone. To end it: kill {supervisor}")
        end.touch()
        out, _ = process.communicate(timeout=30)
    assert out.count("end") == 2, out
    assert wait_until_gone(str(path)) == []


def test_nothing_is_left_where_both_are_killed(tmp_path):
    path = script(tmp_path, QUIET)
    with started("-np", 2, "--elastic", sys.executable, path, tmp_path / "never") as process:
        for _ in range(2):
            assert "up" in process.stdout.readline()
        supervisor = children.supervisor_of(process.pid)
        process.kill()
        os.kill(supervisor, signal.SIGKILL)
        assert wait_until_gone(str(path)) == []


def test_a_job_of_fixed_size_has_one_process_and_ends_with_it(tmp_path):
    path = script(tmp_path, QUIET)
    words = ("-np", 2, "--transport", "tcp", sys.executable, path, tmp_path / "never")
    with started(*words) as process:
        for _ in range(2):
            assert "up" in process.stdout.readline()
        process.kill()
        assert wait_until_gone(str(path)) == []
