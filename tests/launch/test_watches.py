"""Whom an elastic job waits for is said early, where that rank does nothing."""

from __future__ import annotations

import sys

import pytest
from launching import launch, script

PROGRAM = """
import time
import tensorflow as tf
import tfhvd as hvd
hvd.init()
for step in range(20):
    if hvd.rank() == 1 and step == 10:
        DEED
    hvd.allreduce(tf.ones(4), name="gradient")
"""
SLEEPS = "time.sleep(6)"
WORKS = "until = time.monotonic() + 6\n        while time.monotonic() < until: pass"


@pytest.mark.parametrize(
    ("deed", "option", "said"),
    [
        (SLEEPS, "--elastic", "with --evict-after S the job would go on without it"),
        pytest.param(
            SLEEPS, "--evict-after=30", "after 30 s the job goes on", marks=pytest.mark.thorough
        ),
        (WORKS, "--elastic", ""),
        pytest.param(SLEEPS, "--no-prefix", "", marks=pytest.mark.thorough),
    ],
)
def test_a_rank_that_does_nothing_is_named_before_it_counts_as_hanging(
    tmp_path, deed, option, said
):
    path = script(tmp_path, PROGRAM.replace("DEED", deed))
    result = launch("-np", 3, option, sys.executable, path, cwd=tmp_path)
    assert result.code == 0, result.err
    told = [line for line in result.err.splitlines() if "the others wait for" in line]
    if not said:
        assert told == []
        return
    [line] = told
    assert "the others wait for rank 1 on host " in line
    assert f": a rank waits in its program, at {path}:" in line
    assert said in line
    assert not [*tmp_path.glob("tfhvd-verdict-*")], "it is no verdict"
