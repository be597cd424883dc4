"""What `init` says where ranks do not come."""

from __future__ import annotations

import re

import mpi
import network
import pytest
from late_ranks import PROGRAM, SAID

WORK = """
def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
"""


@pytest.mark.thorough
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


@pytest.mark.thorough
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


APART = """
import os, time
from pathlib import Path
import tfhvd as hvd
from tfhvd.protocol.variables import rank_of
folder = Path(os.environ["TFHVD_TEST_OUTPUT"])
(folder / f"ready.{rank_of(os.environ)}").write_text("ready\\n")
while not (folder / "cut").exists():
    time.sleep(0.05)
hvd.init()
"""
# The processes of the second host are children of the first one's here, which sees them.
ALONE = r"rank {0}: .* All of this host \((ranks 0-1|rank 1)\) have called it\. .*cannot reach each"


@pytest.mark.skipif(not network.available(), reason="only root can make hosts")
def test_hosts_that_do_not_reach_each_other_say_so_in_a_line_each():
    with network.hosts(2) as net:

        def cut(processes: mpi.Processes) -> None:
            for rank in range(2):
                processes.wait_for_file(f"ready.{rank}", mpi.SECONDS_TO_START)
            net.cut_off(1)
            (processes.folder / "cut").touch()
            for rank in range(2):
                processes.wait_for_text(rank, "they cannot reach each other")
            processes.kill()

        job = mpi.run_ranks(
            2,
            APART,
            env={"TFHVD_STALL_CHECK_TIME_SECONDS": "1"},
            launcher=net.launcher(1),
            within=net.run_on(0),
            while_running=cut,
        )
    for number, rank in enumerate(job.ranks):
        said = [line for line in rank.err.splitlines() if "has waited" in line]
        assert len(said) == 1 and re.search(ALONE.format(number), said[0]), job
