"""The jobs that commands speak of: each is found once, also while its ranks come and go."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flight_records import collective, record

from tfhvd.hang import flight_record, init_waiters, local_ranks, status_query
from tfhvd.hang.snapshot import Snapshot
from tfhvd.protocol import variables
from tfhvd.system import procfs
from tfhvd.tools import cli, jobs

LAUNCHER = status_query.Watcher("127.0.0.1:1", "")


@pytest.fixture
def launcher() -> Iterator[int]:
    """A process that has been told of a launcher, as mpirun is."""
    env = {**os.environ, variables.ADDRESS: LAUNCHER.addresses}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=env, stdin=-1) as process:
        yield process.pid
        process.kill()


def test_a_job_is_one_though_a_rank_has_ended_since_it_was_found(launcher, monkeypatch):
    ended = subprocess.Popen(["true"])
    ended.wait()
    rank = local_ranks.Rank(ended.pid, (launcher, os.getpid()), record(0), Path())
    monkeypatch.setattr(local_ranks, "jobs", lambda: [[rank]])
    assert jobs.running(os.getpid()) == [jobs.Job((rank,), LAUNCHER)]


def test_jobs_without_a_launcher_are_told_apart(monkeypatch):
    ranks = [local_ranks.Rank(number, (os.getpid(),), record(0), Path()) for number in (7, 8)]
    monkeypatch.setattr(local_ranks, "jobs", lambda: [[rank] for rank in ranks])
    assert jobs.running(os.getpid()) == [jobs.Job((rank,), None) for rank in ranks]


def test_ranks_of_two_containers_are_two_jobs_though_their_numbers_are_alike(monkeypatch):
    """In each container, the process of number 7 is the job's first rank."""
    containers = {100: 1, 101: 1, 200: 2, 201: 2}
    records = {
        pid: dataclasses.replace(record(pid % 2), pid=7 + pid % 2, leader=7) for pid in containers
    }
    monkeypatch.setattr(procfs, "all_numbers", lambda: iter(containers))
    monkeypatch.setattr(procfs, "memory_files", lambda pid: [(flight_record.NAME, Path(str(pid)))])
    monkeypatch.setattr(procfs, "status_of", lambda pid: {"NSpid": f"{pid}\t{records[pid].pid}"})
    monkeypatch.setattr(procfs, "namespace_of", containers.get)
    monkeypatch.setattr(procfs, "above", lambda pid: [containers[pid]])
    monkeypatch.setattr(local_ranks, "_read", lambda path: records[int(path.name)])
    assert [[rank.pid for rank in job] for job in local_ranks.jobs()] == [[100, 101], [200, 201]]
    assert [[rank.pid for rank in job] for job in local_ranks.jobs_of(2)] == [[200, 201]]


def test_the_space_of_process_numbers_is_known():
    assert procfs.namespace_of(os.getpid()) == Path("/proc/self/ns/pid").stat().st_ino


def test_a_job_that_begins_while_it_is_looked_for_is_told_of_once(launcher, monkeypatch, capsys):
    """Its ranks were in `init`, and are seen by the launcher alone when they are looked at."""
    waits = init_waiters.Arrival(launcher + 1, "S", waits=True, came=True)
    monkeypatch.setattr(init_waiters, "meetings", lambda pid: [{0: waits}])
    monkeypatch.setattr(local_ranks, "jobs", lambda: [])
    above = procfs.above
    of_rank = {waits.pid: [launcher, os.getpid()]}
    monkeypatch.setattr(procfs, "above", lambda pid: of_rank.get(pid) or above(pid))
    seen = [
        Snapshot(record(rank, collective()), "S", 0.0, 0, 0, 0.0, 0, "", (), 20.0)
        for rank in range(2)
    ]
    monkeypatch.setattr(status_query, "look", lambda at: seen)
    assert cli.main(["why", str(launcher), "--seconds", "0.1", "--json"]) == 1
    [answer] = json.loads(capsys.readouterr().out)
    assert answer["kind"] != "meeting"
