"""Where the time goes, from records made up: parts, clocks, the straggler, and the words."""

from __future__ import annotations

import dataclasses
import json

import pytest
from made_up import job

from tfhvd.profiling import breakdown, clock_offsets, report, straggler
from tfhvd.profiling.intervals import Span, in_each, merged, seconds, without
from tfhvd.profiling.trace import Meeting, Sent, Trace


def test_spans():
    assert merged([Span(3, 3), Span(1, 2), Span(2, 4)]) == [Span(1, 4)]
    assert without([Span(0, 3), Span(5, 6)], [Span(1, 2), Span(2.5, 9)]) == [
        Span(0, 1),
        Span(2, 2.5),
    ]
    windows = [Span(2, 5.5), Span(3, 5), Span(5.5, 9)]
    assert list(in_each([Span(5, 6), Span(0, 3)], windows)) == [
        [Span(2, 3), Span(5, 5.5)],
        [],
        [Span(5.5, 6)],
    ]
    assert seconds([]) == 0


@pytest.mark.parametrize("compiled", [False, True])
def test_the_parts_of_a_step(compiled):
    for steps in breakdown.divide(job(compiled=compiled)).values():
        for step in steps:
            assert step.whole == pytest.approx(0.1)
            expected = {"input": 0.01, "computing": 0.06, "overhead": 0.001, "communication": 0.02}
            for name in breakdown.PARTS:
                assert step.parts[name] == pytest.approx(
                    expected.get(name, 0.009 if name == "other" else 0), abs=1e-9
                )
            assert sum(step.parts.values()) == pytest.approx(step.whole)


@pytest.mark.parametrize("hosts", [("a", "a"), ("a", "b"), ("a", "a", "b", "b")])
def test_slow_input_of_one_rank_is_what_the_others_wait_for(hosts):
    last = len(hosts) - 1
    made = report.make(job({last: 0.02}, ahead=1234.5, hosts=hosts))
    found = made.straggler
    assert (found.rank, found.cause) == (last, "input")
    assert found.seconds == pytest.approx(0.02, abs=0.012 if "b" in hosts else 1e-6)
    assert found.more == pytest.approx(0.02)
    for rank, steps in made.steps.items():
        for step in steps:
            assert sum(step.parts.values()) == pytest.approx(step.whole)
            assert set(step.waits_for) <= {last} - {rank}


@pytest.mark.parametrize("part", ["computing", "garbage"])
def test_another_cause(part):
    traces = job({0: 0.03}, part=part)
    if part == "garbage":
        slow = traces[0]
        spans = tuple(Span(s.begin + 0.07, s.begin + 0.1) for s in slow.steps)
        traces[0] = Trace(**{**vars(slow), "collecting": spans})
    found = report.make(traces).straggler
    assert (found.rank, found.cause) == (0, part)


def test_the_machine_says_why_computing_is_slow():
    traces = job({0: 0.03}, part="computing")
    traces[0] = Trace(**{**vars(traces[0]), "throttled": 0.1})
    assert report.make(traces).straggler.cause == "quota"
    traces[0] = Trace(**{**vars(traces[0]), "throttled": 0.0, "faults": 100})
    assert report.make(traces).straggler.cause == "page faults"
    traces[0] = Trace(**{**vars(traces[0]), "faults": 0, "preempted": 5 * 0.02})
    assert report.make(traces).straggler.cause == "preempted"
    traces[0] = Trace(**{**vars(traces[0]), "preempted": 5 * 0.01})  # of 30 ms a step
    assert report.make(traces).straggler.cause == "computing"


def test_what_keeps_a_rank_from_running_does_so_in_any_part():
    """Of 30 ms 12 are in computing, 12 in Python, 6 in the collector; collectives are slow."""
    traces = job({0: 0.03}, part="computing")
    slow = traces[0]
    traces[0] = dataclasses.replace(
        slow,
        computing=tuple(Span(s.begin, s.end - 0.018) for s in slow.computing),
        collecting=tuple(Span(s.end - 0.006, s.end) for s in slow.computing),
    )
    assert report.make(traces).straggler.cause == ""
    assert "Communication that nothing hides takes 16% of a step." in report.make(traces).lines()
    for held in ({"throttled": 0.1}, {"faults": 100}, {"preempted": 5 * 0.02}):
        made = report.make({**traces, 0: dataclasses.replace(traces[0], **held)})
        assert made.straggler.cause in straggler.HELD
        assert made.straggler.more == pytest.approx(0.024)
        assert "takes 16%" not in "\n".join(made.lines())


@pytest.mark.parametrize("part", ["computing", "other"])
def test_a_few_late_steps_are_no_matter_of_every_step(part):
    """One step of ten takes 300 ms more: nobody is told what the rank does between all steps."""
    made = report.make(job({0: [0.3, *[0.0] * 9]}, part=part, steps=10))
    assert (made.straggler.rank, made.straggler.cause) == (0, "at times")
    assert "It takes longer in a few steps only, 30.0 ms a step more" in "\n".join(made.lines())
    most = report.make(job({0: [0.0, *[0.03] * 9]}, part=part, steps=10))
    assert most.straggler.cause == part


def test_a_rank_that_is_late_in_every_step_is_found_though_another_one_is_very_late_once():
    late = {0: [0.0, 0.0, 0.5, *[0.0] * 7], 1: [0.03] * 10}
    made = report.make(job(late, hosts=("a",) * 4, steps=10))
    assert (made.straggler.rank, made.straggler.cause) == (1, "input")
    assert made.straggler.seconds == pytest.approx(9 / 10 * 0.03)


def test_no_step_has_no_straggler():
    assert report.make(job(steps=0)).straggler is None


def test_ranks_that_wait_for_each_other_in_turn():
    first, second = job({0: 0.02}), job({1: 0.02})
    traces = {}
    for rank in (0, 1):
        later = second[rank]
        move = lambda span: Span(span.begin + 10, span.end + 10)  # noqa: E731
        meetings = [
            Meeting(
                m.name, m.turn + 5, *(t + 10 for t in (m.submitted, m.agreed, m.began, m.ended))
            )
            for m in later.meetings
        ]
        traces[rank] = Trace(
            rank,
            "a",
            (*first[rank].steps, *map(move, later.steps)),
            (*first[rank].input, *map(move, later.input)),
            (*first[rank].computing, *map(move, later.computing)),
            meetings=(*first[rank].meetings, *meetings),
        )
    assert report.make(traces).straggler is None


def test_clocks_of_two_hosts():
    found = clock_offsets.offsets(job(ahead=-77.0, hosts=("a", "a", "b")))
    assert found[1] == clock_offsets.Offset(0.0, 0.0)
    assert abs(found[2].seconds - 77.0) <= found[2].error < 0.03
    alone = clock_offsets.offsets({0: Trace(0, "a", ()), 1: Trace(1, "b", ())})
    assert alone[1].error == float("inf")


def test_the_words():
    lines = report.make(job({1: 0.02})).lines()
    assert lines[0] == "5 steps of 2 ranks, in ms a step:"
    assert lines[2].split()[:3] == ["0", "120.000", "10.000"]
    assert (
        "The others wait for rank 1 for 20.0 ms a step (17%). It waits for its input" in lines[-2]
    )
    even = report.make(job())
    assert even.straggler is None
    assert even.lines()[-2] == "Communication that nothing hides takes 21% of a step."


def test_the_rank_that_is_waited_for_stands_behind_each_row():
    made = report.make(job({1: 0.02}))
    lines = made.lines(each_step=True)
    assert lines[1].endswith("  waits for")
    assert lines[2].endswith("  rank 1") and lines[3].endswith("  -")
    step = lines.index("step 3:")
    assert lines[step + 1].endswith("  rank 1") and lines[step + 2].endswith("  -")


def fused(calls, collectives=3, tensors=3, kilobytes=4, **fields):
    """A report of steps whose collectives travel in so many calls a step, and cost a fifth."""
    traces = job()
    for rank, trace in traces.items():
        meetings = [
            dataclasses.replace(
                m, name=f"{m.name}{number}", tensors=tensors, bytes=1024 * kilobytes
            )
            for m in trace.meetings
            for number in range(collectives)
        ]
        of_steps = {"meetings": tuple(meetings), "calls": calls * len(trace.steps)}
        traces[rank] = dataclasses.replace(trace, **of_steps, **fields)
    return "\n".join(report.make(traces).lines())


def test_how_full_calls_are_is_said():
    assert (
        "3.0 collectives a step, of 512.0 KiB each: 9.0 tensors in 2.0 calls; a call has 4.5 "
        "tensors and 768.0 KiB, 75% of a full one (1 MiB)\n"
    ) in fused(2, kilobytes=512)
    assert "100% of a full one" in fused(1, kilobytes=2048)
    assert ", 75% of a full one (0.25 MiB)\n" in fused(2, kilobytes=128, alone_bytes=256 << 10)
    assert "tensors and 6.0 KiB\n" in fused(2, kilobytes=4, alone_bytes=0)
    assert "3.0 collectives a step, of 4.0 KiB each\n" in fused(0)


@pytest.mark.parametrize(
    ("calls", "collectives", "tensors", "kilobytes", "advice"),
    [
        (3, 3, 1, 4, "pass many tensors to one grouped_allreduce"),
        (50, 1, 50, 100, "raise TFHVD_FUSION_THRESHOLD"),
        (1, 1, 50, 100, "compression send less"),
        (50, 1, 50, 50 << 10, "compression send less"),  # each tensor is large enough
    ],
)
def test_the_advice_goes_by_what_is_small(calls, collectives, tensors, kilobytes, advice):
    assert advice in fused(calls, collectives, tensors, kilobytes)


def test_collectives_before_the_steps_do_not_count():
    traces = job()
    for rank, trace in traces.items():
        traces[rank] = dataclasses.replace(trace, steps=trace.steps[1:])
    assert report.make(traces).collectives == 1.0


def test_it_travels():
    sent = (Sent("10.0.0.1:5", "10.0.0.2:6", 1000, 0.25),)
    trace = dataclasses.replace(job()[1], calls=3, sent=sent)
    assert Trace.of_fields(json.loads(json.dumps(trace.as_fields()))) == trace


def test_every_step_is_printed_where_it_is_asked_for():
    short, long = (
        breakdown.Step(whole, dict.fromkeys(breakdown.PARTS, 0.001)) for whole in (0.01, 0.02)
    )
    steps = {0: [short, long], 1: [short]}
    made = report.Report(steps, straggler=None, clock_error=0.0, collectives=0.0, bytes=0.0)
    lines = made.lines(each_step=True)
    assert [line for line in lines if line.startswith("step ")] == ["step 1:", "step 2:"]
    after = lines[lines.index("step 2:") + 1 :]
    assert after[0].split()[:2] == ["0", "20.000"]
    assert not after[1:] or not after[1].startswith("   1")  # rank 1 has made one step only
    assert "step 1:" not in made.lines()
