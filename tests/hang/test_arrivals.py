"""Who has come to `init`: what is said of the ranks of a host, and how they are found."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest

from tfhvd.hang import init_waiters
from tfhvd.hang.init_waiters import Arrival
from tfhvd.protocol import variables
from tfhvd.system import procfs

WAITS = Arrival(10, "S", waits=True, came=True)


def late(state: str) -> Arrival:
    return Arrival(20, state, waits=False, came=False)


@pytest.mark.parametrize(
    ("state", "does"),
    [("S", "waits for something"), ("R", "computes"), ("T", "is stopped: kill -CONT 20")],
)
def test_who_has_not_come_is_named_with_what_it_does(state, does):
    said = init_waiters.text({0: WAITS, 1: WAITS, 2: late(state)})
    assert f"On this host rank 2 has not called it. It (process 20) {does}." in said


def test_of_several_the_first_is_looked_at():
    said = init_waiters.text({0: WAITS, 1: late("R"), 2: late("S"), 4: late("S")})
    assert "On this host ranks 1-2, 4 have not called it. Rank 1 (process 20) computes." in said


def test_where_all_of_a_host_have_come_it_is_the_others_or_the_network():
    said = init_waiters.text({2: WAITS, 3: WAITS})
    assert "All of this host (ranks 2-3) have called it." in said
    assert "tfhvd doctor" in said


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({}, None),
        ({"PMI_RANK": "3", "SLURM_PROCID": "0"}, "PMI_RANK"),
        ({"OMPI_COMM_WORLD_RANK": "x", "SLURM_PROCID": "1"}, "SLURM_PROCID"),
    ],
)
def test_a_rank_has_its_number_from_the_nearest_launcher(environ, variable):
    assert variables.variable_in(environ) == variable


def test_a_process_that_no_launcher_has_started_meets_nobody():
    with init_waiters.announced():
        assert init_waiters.meetings(os.getpid()) == []


MEETS = """
import time
from tfhvd.hang import init_waiters
with init_waiters.announced():
    print(flush=True)
    time.sleep(60)
"""


def test_a_meeting_is_one_though_its_ranks_change_while_they_are_looked_at(monkeypatch):
    ranks = []
    try:
        for rank in range(2):
            env = {**os.environ, variables.RANK: str(rank)}
            words = [sys.executable, "-c", MEETS]
            ranks.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE))
            assert ranks[rank].stdout is not None
            ranks[rank].stdout.readline()
        states = itertools.cycle("RSS")
        monkeypatch.setattr(procfs, "state_of", lambda pid: next(states))
        [found] = init_waiters.meetings(os.getpid())
        assert {rank: each.pid for rank, each in found.items()} == {
            rank: process.pid for rank, process in enumerate(ranks)
        }
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
