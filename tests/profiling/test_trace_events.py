"""Profiled steps as events of a timeline, there and back."""

import json

import pytest

from tfhvd.profiling.intervals import Span
from tfhvd.profiling.trace import Sent, Trace
from tfhvd.profiling.trace_events import events_of, fields_in

ROW = 7 << 20
TRACE = Trace(
    7,
    "a",
    steps=(Span(10.0, 11.0), Span(11.0, 12.5)),
    input=(Span(10.0, 10.25),),
    computing=(Span(10.5, 10.75), Span(10.7, 11.5)),
    collecting=(Span(12.0, 12.125),),
    compiled=True,
    faults=3,
    throttled=0.5,
    preempted=0.25,
    calls=40,
    sent=(Sent("10.0.0.1:5", "10.0.0.2:6", 1000, 0.25),),
)


def test_what_is_written_is_read():
    events = json.loads(json.dumps(events_of(TRACE, ROW)))
    fields = fields_in(events, ROW, since=9.0, shift=100.0)
    assert fields["steps"] == (Span(110.0, 111.0), Span(111.0, 112.5))
    assert fields["input"] == (Span(110.0, 110.25),)
    assert fields["computing"] == (Span(110.5, 111.5),), "laid together where they overlap"
    assert fields["collecting"] == (Span(112.0, 112.125),)
    assert fields["compiled"] is True
    assert (fields["faults"], fields["throttled"], fields["calls"]) == (3, 0.5, 40)
    assert fields["preempted"] == 0.25
    assert fields["sent"] == TRACE.sent


def test_no_two_events_of_a_lane_overlap():
    ends: dict[int, float] = {}
    for event in events_of(TRACE, ROW):
        assert event["pid"] == ROW and event["tid"] > 0
        if event["ph"] == "X":
            assert event["ts"] >= ends.get(event["tid"], 0.0)
            ends[event["tid"]] = event["ts"] + event["dur"]
    assert len(ends) == 4


def test_steps_before_the_recording_are_left_out():
    fields = fields_in(events_of(TRACE, ROW), ROW, since=10.9, shift=0.0)
    assert fields["steps"] == (Span(11.0, 12.5),)


def test_two_profiles_in_one_file():
    later = Trace(7, "a", steps=(Span(20.0, 21.0),), faults=1, calls=2)
    fields = fields_in([*events_of(TRACE, ROW), *events_of(later, ROW)], ROW, 0.0, 0.0)
    assert len(fields["steps"]) == 3
    assert (fields["faults"], fields["calls"]) == (4, 42)


@pytest.mark.parametrize("row", [0, ROW + 1])
def test_of_another_row_there_are_none(row):
    assert fields_in(events_of(TRACE, ROW), row, 0.0, 0.0) == {}
