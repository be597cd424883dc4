"""What Slurm has allocated."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import time

import pytest
from launching import launch

from tfhvd.launch import cli
from tfhvd.launch.errors import UsageError
from tfhvd.launch.options.parse import parse
from tfhvd.launch.placement.slurm import Allocation, allocation, expand, hosts_now, repeated
from tfhvd.launch.state.hosts import Host

TWO = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("node[1-3,7]", ["node1", "node2", "node3", "node7"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[9-10]", ["n9", "n10"]),
        ("a1,b[1-2]-ib,c", ["a1", "b1-ib", "b2-ib", "c"]),
        ("r[1-2]n[3,5]", ["r1n3", "r1n5", "r2n3", "r2n5"]),
    ],
)
def test_lists_of_nodes(nodes, names):
    assert expand(nodes) == names


@pytest.mark.parametrize("nodes", ["n[1-", "n[a-b]", "n[1,]", "n]", "[", "n[1-2"])
def test_a_malformed_list(nodes):
    with pytest.raises(UsageError, match="cannot read Slurm's list of nodes"):
        expand(nodes)


def test_repeated_numbers():
    assert repeated("2(x3),1") == [2, 2, 2, 1]
    assert repeated("4") == [4]
    assert repeated("") == repeated("2(x") == repeated("0") == []


@pytest.mark.parametrize(
    ("more", "num_proc", "slots"),
    [
        ({"SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2(x2)"}, 4, (2, 2)),
        ({"SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "2,1"}, 3, (2, 1)),
        ({"SLURM_NTASKS_PER_NODE": "4"}, 8, (4, 4)),
        ({"SLURM_NTASKS": "3"}, 3, (2, 2)),
        ({"SLURM_TASKS_PER_NODE": "8(x2)"}, 16, (8, 8)),
        ({"SLURM_NTASKS": "3", "SLURM_NTASKS_PER_NODE": "2"}, 3, (2, 2)),
        ({}, 2, (1, 1)),
    ],
)
def test_ranks_and_slots(more, num_proc, slots):
    hosts = tuple(Host(name, count) for name, count in zip(("n1", "n2"), slots))
    query = ("squeue", "--noheader", "--jobs=7", "--format=%N")
    assert allocation({**TWO, **more}) == Allocation(num_proc, hosts, query)


def test_outside_of_slurm():
    assert allocation({"SLURM_NTASKS": "4"}) is None
    assert allocation({"SLURM_JOB_ID": "7"}) is None


def test_np_and_hosts_come_from_slurm_where_the_user_gives_neither():
    environ = {**TWO, "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2(x2)"}
    job = parse(["true"], environ)
    assert job.num_proc == 4 and job.hosts == (Host("n1", 2), Host("n2", 2))
    job = parse(["-np", "3", "true"], environ)
    assert job.num_proc == 3 and job.hosts == (), "mpirun asks Slurm itself"
    job = parse(["-H", "n1:2", "true"], environ)
    assert job.num_proc == 2 and job.hosts == (Host("n1", 2),)


def test_an_elastic_job_follows_the_nodes_of_its_allocation(tmp_path):
    environ = {**TWO, "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2(x2)"}
    job = parse(["-np", "2", "--max-np", "6", "true"], environ)
    assert (job.num_proc, job.hosts) == (2, (Host("n1", 2), Host("n2", 2)))
    assert parse(["-np", "5", "--elastic", "true"], environ).hosts == (), "it has no slots for 5"
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho n[2-3]\n")
    squeue.chmod(0o755)
    job = dataclasses.replace(job, node_query=(str(squeue), *job.node_query[1:]))
    with contextlib.closing(cli._hosts(job)) as found:
        assert found.hosts == job.hosts
        deadline = time.monotonic() + 20
        while found.hosts == job.hosts:
            assert time.monotonic() < deadline
            found.tick(time.monotonic())
            time.sleep(0.01)
        assert found.hosts == (Host("n2", 2), Host("n3", 2))


def test_a_node_that_was_added_has_the_slots_of_the_first():
    assert hosts_now("n1,n[4-5]\n", [Host("n1", 3), Host("n2", 2)]) == (
        *(Host("n1", 3), Host("n4", 3), Host("n5", 3)),
    )


def test_a_job_on_one_node():
    here = socket.gethostname()
    result = launch("hostname", SLURM_JOB_ID="7", SLURM_JOB_NODELIST=here, SLURM_NTASKS="2")
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == [f"[0] {here}", f"[1] {here}"]


def test_several_launchers_of_srun():
    with pytest.raises(UsageError, match="srun has started tfhvdrun 4 times"):
        parse(["true"], {**TWO, "SLURM_STEP_NUM_TASKS": "4"})
    assert allocation({**TWO, "SLURM_STEP_NUM_TASKS": "1"}) is not None
