"""``tfhvd dump``: what it says of records, and that it finds those of running jobs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

import children
import mpi
import pytest
from flight_records import collective, record
from variants import also

from tfhvd.tools import cli, dump

TFHVD = [sys.executable, "-m", "tfhvd"]


def test_who_has_not_called_a_collective_is_named():
    job = [record(0, collective()), record(1), record(2, collective())]
    assert dump.describe(job, 3)[1] == (
        "  allreduce 'loss' (4 kB, train.py:7 in step): ranks 0, 2 wait, rank 1 has not called it"
    )


@pytest.mark.parametrize(
    "job",
    [
        [record(0, collective()), record(1, collective())],  # about to be agreed
        [record(0, collective(name="g (process set 1)")), record(1)],  # rank 1 may not be in it
        [record(0, collective(name="")), record(1)],
    ],
)
def test_nobody_is_named_where_it_is_not_known(job):
    assert not any("has not called" in line for line in dump.describe(job, 3))


def test_each_rank_has_a_line_and_its_collectives():
    done = collective(1, agreed=6.0, began=6.5, ended=7.0, waited_for=1)
    running = collective(2, "grads", 18.0, agreed=18.5, began=19.5, phase="shm_ALLREDUCE")
    lines = dump.describe([record(0, done, running, done=1)], 3)
    assert lines == [
        "job of 2 ranks, 1 of them on this host: type `tfhvd dump` on the others, too",
        "rank 0 (host n1, process 100): 1 of 2 collectives done, last progress 1.000 s ago",
        "  running     2.000 s  allreduce 'grads' (4 kB, train.py:7 in step) in shm_ALLREDUCE",
        "  done       13.000 s  allreduce 'loss' (4 kB, train.py:7 in step), took 2000.000 ms, "
        "waited for rank 1",
    ]


def test_long_lists_are_cut():
    many = [collective(number, f"g{number}") for number in range(1, 9)]
    lines = dump.describe([record(0, *many), record(1)], 3)
    assert "  and 3 more" in lines
    assert "  and 3 more that wait" in lines
    assert len(lines) == 1 + 6 + 1 + 6 + 1


def test_what_is_no_job_is_said(capsys):
    assert cli.main(["dump", "999999999"]) == 2
    assert "there is no process 999999999 on this host" in capsys.readouterr().err
    assert cli.main(["dump", str(os.getpid())]) == 2
    assert "is no rank of a job of tfhvd" in capsys.readouterr().err


HANGS = """
import sys, time
import tfhvd as hvd
hvd.init()
print(hvd.rank(), flush=True)
if hvd.rank() == 0:
    hvd.add_process_set([0, 1])
time.sleep(60)
"""


# Rank 2 asks for "late" when all know that the others have.
LATE = """
import threading, time
import tensorflow as tf
import tfhvd as hvd
from tfhvd.tools import dump
from tfhvd.runtime.native import load_native
from tfhvd.hang import flight_record
hvd.init()
def reduce(name):
    hvd.allreduce(tf.ones(2), name=name)
def noted():
    return flight_record.read(load_native().flight_record())
early = threading.Thread(target=reduce, args=("late",))
if hvd.rank() != 2:
    early.start()
    while noted().submitted == 0:
        time.sleep(0.001)
reduce("first")
if hvd.rank() == 2:
    early.start()
early.join()
[late] = [line for line in dump.describe([noted()], 9) if "'late'" in line]
print(late)
"""


@pytest.mark.thorough
def test_every_rank_knows_whom_a_collective_waited_for():
    job = mpi.run_ranks(3, LATE)
    assert [rank.code for rank in job.ranks] == [0] * 3, job
    lines = [rank.out.strip() for rank in job.ranks]
    assert [line.endswith(", waited for rank 2") for line in lines] == [True, True, False], job
    assert "waited for" not in lines[2]


def wait_until_it_hangs(pid: int) -> list[dict]:
    """Asks again and again, from outside, until rank 0 waits."""
    deadline = time.monotonic() + 30
    while True:
        said = subprocess.run([*TFHVD, "dump", str(pid), "--json"], capture_output=True, text=True)
        if said.returncode == 0:
            [job] = json.loads(said.stdout)
            if len(job) == 2 and job[0]["submitted"] == 1:
                return job
        assert time.monotonic() < deadline, said
        time.sleep(0.1)


@pytest.mark.parametrize("launcher", [also("mpirun"), "tfhvdrun"])
def test_a_running_job_that_nobody_prepared(launcher, tmp_path):
    (tmp_path / "hangs.py").write_text(HANGS)
    words = {
        "mpirun": ["mpirun", "--bind-to", "none", "--oversubscribe"],
        "tfhvdrun": [sys.executable, "-m", "tfhvd.launch"],
    }[launcher]
    as_root = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    env = children.environment(**dict.fromkeys(as_root, "1"))
    command = [*words, "-np", "2", sys.executable, str(tmp_path / "hangs.py")]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as job:
        try:
            ranks = wait_until_it_hangs(job.pid)
            [waiting] = ranks[0]["collectives"]
            assert (waiting["name"], waiting["ended"]) == ("tfhvd.process_sets", None)
            assert ranks[1]["collectives"] == []
            # By a rank's number as by the launcher's.
            words = ["dump", str(ranks[1]["pid"]), "--stacks"]
            said = subprocess.run(
                [*TFHVD, *words], capture_output=True, text=True, check=True
            ).stdout
            assert "rank 0 waits, rank 1 has not called it" in said
            assert re.search(r"^rank 1 \(host \S+, process \d+\): 0 of 0 collectives", said, re.M)
            place = re.escape(str(tmp_path / "hangs.py"))
            assert re.search(
                rf"^rank 1, the last call first:\n    {place}:8 in <module>", said, re.M
            )
            assert re.search(rf"^rank 0, .*\n(    .*\n)+    {place}:7 in <module>", said, re.M)
            # By its program; and they go on.
            words = ["dump", str(tmp_path / "hangs.py")]
            said = subprocess.run([*TFHVD, *words], capture_output=True, text=True, check=True)
            assert said.stdout.startswith("job of 2 ranks\n")
            assert len(wait_until_it_hangs(job.pid)) == 2
        finally:
            job.terminate()
            job.wait(20)


CHANGES = """
import os, signal, subprocess, sys
import tfhvd as hvd
hvd.init()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(1.0)
subprocess.run([sys.executable, "-m", "tfhvd", "dump", str(os.getpid())], check=True)
"""


@pytest.mark.thorough
def test_of_an_elastic_job_those_are_shown_that_take_part_now(tmp_path):
    program = tmp_path / "changes.py"
    program.write_text(CHANGES)
    words = ["-m", "tfhvd.launch", "-np", "2", "--elastic", "--no-prefix", sys.executable]
    job = mpi.run_ranks(1, [*words, str(program)], mpirun=False)
    assert job.code == 0, job
    assert job.ranks[0].out.startswith("job of 1 rank\nrank 0 (host "), job
    assert job.ranks[0].out.count("job of") == 1, job
