"""Whom an elastic job waits for is said early, where that rank does nothing."""

from __future__ import annotations

import json
import sys

import pytest
import user_messages
from flight_records import collective, seen
from launching import launch, script

from tfhvd.hang.detector import EAGER
from tfhvd.hang.slow_ranks import Delay
from tfhvd.hang.snapshot import as_fields
from tfhvd.launch.state.roster import Roster
from tfhvd.launch.state.supervisor_config import Timeouts
from tfhvd.launch.supervisor.job_monitor import JobMonitor
from tfhvd.protocol import messages

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


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("deed", "option", "said"),
    [
        (SLEEPS, "--elastic", "with --evict-after S the job would continue without it"),
        pytest.param(
            SLEEPS, "--evict-after=30", "after 30 s the job continues", marks=pytest.mark.thorough
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
    told = [line for line in result.err.splitlines() if "the other ranks wait for" in line]
    if not said:
        assert told == []
        return
    [line] = told
    assert "the other ranks wait for rank 1 on host " in line
    assert f": a rank waits in its program, at {path}:" in line
    assert said in line
    assert not [*tmp_path.glob("tfhvd-verdict-*")], "it is no verdict"


@pytest.mark.parametrize(("hang", "lines"), [(60.0, 1), (0.0, 0)])
def test_of_a_slow_rank_is_told_once_and_not_where_nobody_watches(hang, lines):
    said = []
    watches = JobMonitor(
        members=Roster(3),
        limits=Timeouts(start=60.0, stop=5.0, grace=30.0, hang=hang),
        ask=lambda frame: [],
        say=said.append,
        on_hang=lambda found, looks: None,
    )
    for waiter in (0, 2):
        found = Delay(1, waiter, 0.851, 21.0, 1312)
        watches.hear(
            waiter, messages.FrameKind.SLOW_RANK, json.loads(json.dumps(found.fields())), 0.0
        )
    assert len(said) == lines
    if lines:
        user_messages.check("a rank is slow", *said)


def test_a_rank_that_rehearses_is_none_of_those_that_are_looked_at():
    said = []
    watches = JobMonitor(
        members=Roster(2, least=1),
        limits=Timeouts(start=60.0, stop=5.0, grace=30.0, hang=60.0),
        ask=lambda frame: [0, 1, 2],
        say=said.append,
        on_hang=lambda found, looks: said.append("hangs"),
    )
    waits = collective()
    now = 100.0
    watches.hear(0, messages.FrameKind.STALLED, {"limit": EAGER.early}, now)
    for taken in (20.0, 20.6):
        # The one with the number 2 has a job of its own, whose rank 0 waits for nobody.
        views = (seen(0, waits, taken=taken), seen(1, taken=taken), seen(0, taken=taken, size=1))
        for number, view in enumerate(views):
            watches.hear(
                number, messages.FrameKind.SNAPSHOT, json.loads(json.dumps(as_fields(view))), now
            )
        for _ in range(10):
            now += 0.1
            watches.tick(now, ends=False)
    [line] = said
    assert "the other ranks wait for rank 1 on host " in line
