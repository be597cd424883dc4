"""The jobs that commands speak of: each is found once, also while its ranks come and go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flight_records import collective, record

from tfhvd.diagnose import cli, jobs
from tfhvd.launch import environment, inquiry
from tfhvd.watch import arrivals, finder, processes
from tfhvd.watch.snapshot import Snapshot

LAUNCHER = inquiry.Watcher("127.0.0.1:1", "")


@pytest.fixture
def launcher() -> Iterator[int]:
    """A process that has been told of a launcher, as mpirun is."""
    env = {**os.environ, environment.ADDRESS: LAUNCHER.addresses}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=env, stdin=-1) as process:
        yield process.pid
        process.kill()


def test_a_job_is_one_though_a_rank_has_ended_since_it_was_found(launcher, monkeypatch):
    ended = subprocess.Popen(["true"])
    ended.wait()
    rank = finder.Rank(ended.pid, (launcher, os.getpid()), record(0), Path())
    monkeypatch.setattr(finder, "jobs", lambda: [[rank]])
    assert jobs.running(os.getpid()) == [jobs.Job((rank,), LAUNCHER)]


def test_jobs_without_a_launcher_are_told_apart(monkeypatch):
    ranks = [finder.Rank(number, (os.getpid(),), record(0), Path()) for number in (7, 8)]
    monkeypatch.setattr(finder, "jobs", lambda: [[rank] for rank in ranks])
    assert jobs.running(os.getpid()) == [jobs.Job((rank,), None) for rank in ranks]


def test_a_job_that_begins_while_it_is_looked_for_is_told_of_once(launcher, monkeypatch, capsys):
    """Its ranks were in `init`, and are seen by the launcher alone when they are looked at."""
    waits = arrivals.Arrival(launcher + 1, "S", waits=True, came=True)
    monkeypatch.setattr(arrivals, "meetings", lambda pid: [{0: waits}])
    monkeypatch.setattr(finder, "jobs", lambda: [])
    above = processes.above
    of_rank = {waits.pid: [launcher, os.getpid()]}
    monkeypatch.setattr(processes, "above", lambda pid: of_rank.get(pid) or above(pid))
    seen = [
        Snapshot(record(rank, collective()), "S", 0.0, 0, 0, 0.0, 0, "", (), 20.0)
        for rank in range(2)
    ]
    monkeypatch.setattr(inquiry, "look", lambda at: seen)
    assert cli.main(["why", str(launcher), "--seconds", "0.1", "--json"]) == 1
    [answer] = json.loads(capsys.readouterr().out)
    assert answer["kind"] != "meeting"
