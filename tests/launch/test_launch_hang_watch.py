"""When the launcher asks why a job does not go on, and when it says so."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import network
import pytest
from flight_records import collective, seen
from launching import TFHVDRUN, environment, launch, script
from mpi import wait_for

from tfhvd.hang.classifier import Kind
from tfhvd.hang.detector import EAGER, HangWatch, patient
from tfhvd.hang.snapshot import as_fields, of_fields
from tfhvd.launch.supervisor import hang_report
from tfhvd.launch.supervisor.status_round import Looks
from tfhvd.protocol import messages

WAITS = collective()


class Job:
    """Workers that answer when they are told to; time goes by as the test says."""

    def __init__(self, limit=60.0, pace=None):
        self.now, self.sent, self.told = 1000.0, [], []
        self.looks = Looks(self.ask)
        tell = lambda found, looks: self.told.append(found)  # noqa: E731
        pace = pace or (patient(limit) if limit else None)
        probe = lambda: self.ask(messages.frame_json(messages.FrameKind.STALL_QUERY, limit=limit))  # noqa: E731
        self.watch = HangWatch(pace, probe, self.looks.take, tell)

    def ask(self, data):
        [(kind, _)] = messages.Reader().feed(data)
        self.sent.append(kind)
        return [0, 1]

    def let_pass(self, seconds):
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.looks.tick(self.now)
            self.watch.tick(self.now)

    def answer(self, *views):
        for view in views:
            self.looks.view(view.rank, json.loads(json.dumps(as_fields(view))))

    def give(self, *views):
        self.answer(*views)
        self.let_pass(0.5)

    def until_the_next_look(self):
        """Lets time pass; returns how much."""
        looks, begun = self.sent.count(messages.FrameKind.SNAPSHOT_REQUEST), self.now
        while self.sent.count(messages.FrameKind.SNAPSHOT_REQUEST) == looks:
            self.let_pass(0.5)
            assert self.now < begun + 300
        return self.now - begun

    def hang(self, first, *later):
        """A rank waits: what is seen then, and at each look after that; returns when that was."""
        begun, at = self.now, []
        self.watch.stuck(self.now)
        self.give(*first)
        for views in later:
            self.until_the_next_look()
            at.append(self.now - begun)
            self.give(*views)
        return at


HANGS = [[seen(0, WAITS, taken=taken), seen(1, taken=taken)] for taken in (20.0, 65.0, 85.0)]


def test_agents_are_asked_four_times_as_often_as_the_limit():
    job = Job(limit=60.0)
    job.let_pass(61)
    assert job.sent == [messages.FrameKind.STALL_QUERY] * 5
    off = Job(limit=0.0)
    off.let_pass(600)
    off.watch.stuck(off.now)
    assert off.sent == []


def test_a_rank_that_stands_still_is_told_once_it_has_for_longer_than_the_limit():
    job = Job()
    at = job.hang(*HANGS[:2])
    assert job.told == [], "it may go on, as it has not stood still for as long as the limit"
    assert at == [45.0]
    assert job.until_the_next_look() == 19.5, "from half a second after that"
    job.give(*HANGS[2])
    [found] = job.told
    assert (found.kind, found.ranks) == (Kind.WAITS, (1,))


def test_the_eager_watch_tells_within_two_seconds_and_looks_less_where_a_rank_works():
    eager = Job(pace=EAGER)
    [at] = eager.hang(HANGS[0], [seen(0, WAITS, taken=20.6), seen(1, taken=20.6)])
    assert [each.ranks for each in eager.told] == [(1,)]
    assert EAGER.early + EAGER.probe + at <= 2.5, "of which half a second is this test's clock"
    busy = Job(pace=EAGER)
    rests, cpu = [], 0.0
    for _ in range(6):
        begun, looks = busy.now, busy.sent.count(messages.FrameKind.SNAPSHOT_REQUEST)
        while busy.sent.count(messages.FrameKind.SNAPSHOT_REQUEST) == looks:
            busy.let_pass(0.5)
            busy.watch.stuck(busy.now)
        rests.append(busy.now - begun)
        for look in range(2):
            cpu += 1.0
            works = seen(1, state="R", cpu=cpu, taken=20.0 + cpu)
            busy.give(seen(0, WAITS, taken=20.0 + cpu), works)
            if look == 0:
                busy.until_the_next_look()
    assert busy.told == []
    assert rests == sorted(rests), rests
    assert rests[-1] > 20


def test_a_hang_is_told_once_and_watched_on():
    job = Job()
    job.hang(*HANGS)
    assert job.until_the_next_look() == 59.5
    job.give(seen(0, WAITS, taken=145.0), seen(1, taken=145.0))
    assert len(job.told) == 1
    assert job.until_the_next_look() == 59.5
    job.give(seen(0, WAITS, taken=205.0), seen(1, state="T", taken=205.0))
    assert [each.kind for each in job.told] == [Kind.WAITS, Kind.STOPPED]


def test_a_rank_that_is_stopped_is_told_when_others_have_waited_for_the_limit():
    job = Job()
    at = job.hang(HANGS[0], [seen(0, WAITS, taken=65.0), seen(1, state="T", taken=65.0)])
    assert at == [45.0], "after the quarter for which they have waited before"
    assert [each.kind for each in job.told] == [Kind.STOPPED]


def test_a_rank_that_works_is_no_hang_and_is_looked_at_less_and_less():
    job = Job()
    works = [seen(0, WAITS, taken=65.0), seen(1, cpu=40.0, taken=65.0)]
    for rest in (60, 120, 240, 240):
        job.hang(HANGS[0], works)  # and half a second
        looks = job.sent.count(messages.FrameKind.SNAPSHOT_REQUEST)
        job.let_pass(rest - 1)
        job.watch.stuck(job.now)
        assert job.sent.count(messages.FrameKind.SNAPSHOT_REQUEST) == looks
        job.let_pass(1)
    goes_on = [seen(0, collective(2), done=1, taken=65.0), seen(1, done=1, taken=65.0)]
    job.hang(HANGS[0], goes_on)
    assert job.told == []


def test_a_job_that_has_gone_on_is_looked_at_as_soon_as_ever():
    job = Job()
    goes_on = [seen(0, collective(2), done=1, taken=65.0), seen(1, done=1, taken=65.0)]
    for _ in range(3):
        job.hang(HANGS[0], goes_on)
        job.let_pass(29)
        looks = job.sent.count(messages.FrameKind.SNAPSHOT_REQUEST)
        job.watch.stuck(job.now)
        assert job.sent.count(messages.FrameKind.SNAPSHOT_REQUEST) == looks
        job.let_pass(1)
    job.hang(*HANGS)
    assert [found.kind for found in job.told] == [Kind.WAITS]


def test_a_rank_that_has_moved_has_not_stood_still_before():
    job = Job()
    moved = [seen(0, WAITS, taken=85.0), seen(1, cpu=40.0, taken=85.0)]
    job.hang(*HANGS[:2], moved)
    job.let_pass(60)
    later = [[seen(0, WAITS, taken=t), seen(1, cpu=40.0, taken=t)] for t in (150.0, 195.0)]
    job.hang(*later)
    assert job.told == []
    job.until_the_next_look()
    job.give(seen(0, WAITS, taken=215.0), seen(1, cpu=40.0, taken=215.0))
    assert [found.kind for found in job.told] == [Kind.WAITS]


def test_a_rank_that_tensorflow_holds_after_an_evaluation_goes_on_within_a_minute():
    """However short the limit is."""
    place = (("/home/ann/train.py:9 in evaluate",),)

    def evaluates(taken):
        return [
            seen(0, WAITS, taken=taken),
            dataclasses.replace(seen(1, taken=taken), threads=place),
        ]

    job = Job(limit=2.0)
    assert job.hang(*map(evaluates, (20.0, 21.5))) == [1.5]
    assert job.until_the_next_look() == 60.0
    assert job.told == []
    job.give(*evaluates(82.0))
    assert [(found.kind, found.ranks) for found in job.told] == [(Kind.EVALUATING, (1,))]


def test_ranks_that_have_got_other_numbers_meanwhile_are_not_taken_for_each_other():
    """The first of three was lost between two looks, and the others are ranks 0 and 1 now."""
    job = Job()

    def view(number, rank, *collectives, state="S", taken):
        noted = dataclasses.replace(seen(rank, *collectives, state=state, taken=taken))
        return number, dataclasses.replace(noted, record=dataclasses.replace(noted.record, pid=9))

    job.watch.stuck(job.now)
    job.looks.tick(job.now)
    before = dict([view(0, 0, WAITS, taken=20.0), view(1, 1, taken=20.0)])
    after = dict([view(0, 1, WAITS, taken=65.0), view(1, 0, state="T", taken=65.0)])
    for number, each in before.items():
        job.looks.view(number, json.loads(json.dumps(as_fields(each))))
    job.let_pass(0.5)
    job.until_the_next_look()
    for number, each in after.items():
        job.looks.view(number, json.loads(json.dumps(as_fields(each))))
    job.let_pass(0.5)
    assert job.told == []


def test_agents_that_do_not_answer_are_not_waited_for():
    job = Job()
    job.watch.stuck(job.now)
    job.let_pass(60)
    assert job.told == []
    job.let_pass(60)
    job.watch.stuck(job.now)
    job.give(HANGS[0][0])
    job.let_pass(60)
    assert job.told == [], "of what one rank alone has said nothing is known"
    assert job.sent[-1] == messages.FrameKind.STALL_QUERY
    job.let_pass(240)
    job.hang(HANGS[0], HANGS[1][:1])
    job.let_pass(5)
    assert job.told == [], "an agent that is late is no rank that has ended"


def test_looks_are_answered_in_the_order_in_which_they_were_asked():
    job, got = Job(), []
    job.looks.take(job.now, lambda views: got.append(("first", sorted(views))))
    job.looks.take(job.now, lambda views: got.append(("second", sorted(views))))
    job.answer(seen(0), seen(0), seen(1))
    job.let_pass(1)
    assert got == [("first", [0, 1])]
    job.let_pass(4)
    assert got[1] == ("second", [0]), "rank 1 has not answered twice"
    job.answer(seen(1), seen(1))
    assert len(got) == 2


def test_a_view_survives_its_travel_in_part():
    many = [collective(number, ended=9.0) for number in range(1, 500)]
    whole = seen(1, *many, collective(500))
    got = of_fields(json.loads(json.dumps(as_fields(whole))))
    assert got.record.collectives[0] == collective(500)
    assert len(got.record.collectives) == 101
    assert (got.rank, got.line, got.threads) == (1, whole.line, whole.threads)


def test_the_largest_view_fits_into_a_frame():
    name = "n" * 500
    many = [collective(number, name, origin=name) for number in range(1, 3000)]
    threads = tuple(tuple("f" * 5000 for _ in range(100)) for _ in range(200))
    whole = dataclasses.replace(seen(1, *many), threads=threads)
    assert (
        len(messages.frame_json(messages.FrameKind.SNAPSHOT, **as_fields(whole))) < messages.LIMIT
    )


def test_those_that_are_named_are_known_by_the_numbers_they_were_started_with():
    job = Job()
    job.hang(*HANGS)
    [found] = job.told
    looks = [{4: HANGS[0][0], 2: HANGS[0][1]}, {4: HANGS[-1][0], 2: HANGS[-1][1]}]
    assert found.ranks == (1,)
    assert hang_report.named(found, looks) == {2}


def test_the_report_names_its_file_or_says_why_there_is_none(tmp_path):
    job = Job()
    job.hang(*HANGS)
    [found] = job.told
    looks = [dict(enumerate(HANGS[0])), dict(enumerate(HANGS[-1]))]
    lines = hang_report.lines(found, looks, tmp_path)
    assert lines[0] == "tfhvdrun: the job hangs"
    [file] = tmp_path.iterdir()
    assert lines[-1] == f"tfhvdrun: all that was seen: {file}"
    answer = json.loads(file.read_text())
    assert (answer["kind"], answer["ranks"], len(answer["looks"])) == ("waits", [1], 2)
    assert "cannot be written" in hang_report.lines(found, [], tmp_path / "missing")[-1]


PROGRAM = """
import os, time
import tfhvd as hvd
hvd.init()
if hvd.rank() == 0:
    hvd.add_process_set([1])
"""


def test_a_job_that_hangs_says_why_and_ends_if_it_is_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = script(tmp_path, PROGRAM + "time.sleep(60)\n")
    outcome = launch(
        *("--on-hang", "abort", "--stall-check-warning-time-seconds", "1"),
        *("--stop-timeout", "1", "-np", 2, sys.executable, path),
    )
    assert outcome.code == 1
    lines = [line.removeprefix("tfhvdrun: ") for line in outcome.own_lines]
    assert lines[:2] == ["the job hangs", "A rank waits in its program."]
    assert f"is at {path}:8 in <module>" in lines[2]
    assert lines[-1] == "error: the job hangs: a rank waits in its program"
    assert [file.name.startswith("tfhvd-verdict-") for file in tmp_path.glob("*.json")] == [True]


@pytest.mark.thorough
def test_a_job_in_which_one_rank_works_for_long_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    works = "else:\n    end = time.monotonic() + 6\n    while time.monotonic() < end: pass\n"
    path = script(tmp_path, PROGRAM + works + "    hvd.add_process_set([1])\n")
    outcome = launch(
        *("--on-hang", "abort", "--stall-check-warning-time-seconds", "1"),
        *("-np", 2, sys.executable, path),
    )
    assert outcome.code == 0, outcome.err
    assert "hangs" not in outcome.err
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.thorough
def test_the_odd_rank_is_seen_on_another_host(tmp_path):
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    program = PROGRAM.replace("hvd.rank() == 0", "hvd.rank() != 3") + "time.sleep(60)\n"
    path = script(tmp_path, program)
    with network.hosts(2) as net:
        words = ["--on-hang", "abort", "--stall-check-warning-time-seconds", "2"]
        words += ["--stop-timeout", "1", *net.tfhvdrun(2)]
        ran = subprocess.run(
            [*net.run_on(0), *TFHVDRUN, *words, sys.executable, str(path)],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        host = net.names[1]
    assert ran.returncode == 1, ran.stderr
    assert f"tfhvdrun: Rank 3 (host {host}, process " in ran.stderr
    assert f" is at {path}:8 in <module>" in ran.stderr
    assert "Ranks 0-2 wait for add_process_set" in ran.stderr


TRAINS = """
import pathlib, sys
import tfhvd as hvd
hvd.init()
for number in range(1 << 30):
    hvd.remove_process_set(hvd.add_process_set([0]))
    pathlib.Path(f"{sys.argv[1]}/trains").touch()
"""


@pytest.mark.thorough
def test_a_host_that_is_cut_off_is_lost_though_agents_are_probed_all_the_time(tmp_path):
    """The kernel's own questions (keepalive) rest while something is under way to a host."""
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    path = script(tmp_path, TRAINS)
    with network.hosts(2) as net:
        words = ["--stall-check-warning-time-seconds", "1", *net.tfhvdrun(1)]
        with subprocess.Popen(
            [*net.run_on(0), *TFHVDRUN, *words, sys.executable, str(path), str(tmp_path)],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as job:
            wait_for((tmp_path / "trains").exists)
            net.cut_off(1)
            _, errors = job.communicate(timeout=100)
        host = net.names[1]
    assert job.returncode == 1, errors
    assert f"rank 1 on host {host} failed first: lost without a message" in errors
