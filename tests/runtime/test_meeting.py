"""What `init` says where ranks do not come."""

from __future__ import annotations

import re

import mpi
from late_ranks import PROGRAM, SAID

WORK = """
def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
"""


def test_a_rank_that_is_late_is_named_by_one_that_waits():
    env = {"LATE_BY": "5", "TFHVD_STALL_CHECK_TIME_SECONDS": "1"}
    job = mpi.run_ranks(2, PROGRAM, env=env)
    assert re.search(SAID, job.ranks[0].err), job
    assert [rank.out for rank in job.ranks] == ["met\n"] * 2


def test_they_end_where_they_are_not_to_wait_for_ever():
    limits = {"TFHVD_STALL_CHECK_TIME_SECONDS": "1", "TFHVD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
    job = mpi.run_ranks(2, PROGRAM, env={"LATE_BY": "100", **limits})
    assert job.seconds < 60
    assert job.ranks[0].code == 1
    said = SAID.replace("waited 1 s", "waited 3 s") + ".*TFHVD_STALL_SHUTDOWN_TIME_SECONDS allows."
    assert re.search(said, job.ranks[0].err), job


def test_they_end_where_a_rank_stands_still_and_a_job_that_hangs_is_to_end():
    env = {"TFHVD_STALL_CHECK_TIME_SECONDS": "1", "TFHVD_ON_HANG": "abort"}
    job = mpi.run_ranks(2, PROGRAM, env={"LATE_BY": "600", **env})
    assert job.code == 1, job
    said = SAID.replace("waited 1 s", "waited 2 s") + ".*TFHVD_ON_HANG=abort ends the job"
    assert re.search(said, job.ranks[0].err), job
    # One that works is waited for.
    works = PROGRAM.replace("    time.sleep(", "    work(").replace("\nif", f"\n{WORK}if")
    job = mpi.run_ranks(2, works, env={"LATE_BY": "6", **env})
    assert [rank.out for rank in job.ranks] == ["met\n"] * 2, job


def test_nothing_is_said_where_all_come():
    job = mpi.run_ranks(2, PROGRAM, env={"LATE_BY": "0"})
    assert "has waited" not in "".join(rank.err for rank in job.ranks)
