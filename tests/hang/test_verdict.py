"""Why a job does not go on, from two looks at its ranks."""

from __future__ import annotations

import dataclasses

import pytest
from flight_records import collective, record

from tfhvd.hang.classifier import Kind, judge
from tfhvd.hang.snapshot import Snapshot, is_users
from tfhvd.launch.supervisor import hang_report
from tfhvd.system import python_stacks

AT = "/home/ann/train.py:9 in <module>"
KERAS = "/v/lib/python3.11/site-packages/keras/src"
TENSORFLOW = "/v/lib/python3.11/site-packages/tensorflow/python"


def rank(number, *collectives, main=(AT,), state="S", cpu=0.0, taken=20.0, done=0, size=3):
    noted = record(number, *collectives, size=size, done=done)
    return Snapshot(noted, state, cpu, 0, 0, 0.0, 0, "", (tuple(main),), taken)


def later(snapshot, **changes):
    return dataclasses.replace(snapshot, taken=snapshot.taken + 2.0, **changes)


def verdict_of(*ranks, **of_last):
    """`of_last`: how the last rank has changed at the second look."""
    *others, last = ranks
    return judge(ranks, [*map(later, others), later(last, **of_last)])


WAITS = collective()


def test_a_rank_that_waits_elsewhere_is_named_with_its_line():
    verdict = verdict_of(rank(0, WAITS), rank(1, WAITS), rank(2))
    assert (verdict.kind, verdict.ranks) == (Kind.WAITS, (2,))
    assert verdict.lines[:3] == (
        "A rank waits in its program.",
        f"Rank 2 (host n1, process 102) is at {AT}.",
        "Ranks 0-1 wait for allreduce 'loss' (4 kB, train.py:7 in step), for 17.0 s.",
    )


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"cpu": 0.3}, Kind.COMPUTING),  # of two seconds, on a busy machine
        ({"state": "R"}, Kind.COMPUTING),
        ({"cpu": 0.01}, Kind.WAITS),
        ({"threads": (("/home/ann/train.py:12 in <module>",),)}, Kind.COMPUTING),
        ({"state": "T"}, Kind.STOPPED),
        ({"state": "Z"}, Kind.DEAD),
        ({"threads": ()}, Kind.COMPUTING),
    ],
)
def test_what_the_rank_does_that_is_missing(changes, kind):
    verdict = verdict_of(rank(0, WAITS), rank(1, WAITS), rank(2), **changes)
    assert (verdict.kind, verdict.ranks) == (kind, (2,))


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        ((f"{TENSORFLOW}/ops/gen_dataset_ops.py:3 in iterator_get_next", AT), Kind.INPUT),
        ((f"{KERAS}/trainers/data_adapters/py_dataset_adapter.py:3 in get", AT), Kind.INPUT),
        ((f"{TENSORFLOW}/eager/x/tracing_compilation.py:7 in trace_function", AT), Kind.COMPILING),
        ((f"{TENSORFLOW}/x.py:3 in call", f"{KERAS}/x.py:3 in evaluate", AT), Kind.EVALUATING),
        (("/usr/lib/python3.11/threading.py:3 in wait", AT), Kind.WAITS),
        (("/v/lib/python3.11/queue.py:3 in get", f"{TENSORFLOW}/x.py:3 in f", AT), Kind.WAITS),
        (("<frozen importlib._bootstrap>:3 in _call_with_frames_removed", AT), Kind.WAITS),
        ((f"{TENSORFLOW}/ops/gen_data_flow_ops.py:3 in dequeue", AT), Kind.HELD),
        (("/usr/lib/python3/dist-packages/h5py/x.py:3 in read", AT), Kind.HELD),
        ((python_stacks.NO_PYTHON, AT), Kind.HELD),
        (("no stacks: no answer within 2 s: it computes in C code ...",), Kind.HELD),
        (("/v/tfhvd/runtime/membership.py:3 in leave", AT), Kind.FINISHED),
        ((), Kind.UNKNOWN),
    ],
)
def test_what_the_stack_says(stack, kind):
    verdict = verdict_of(rank(0, WAITS), rank(1, main=stack))
    assert (verdict.kind, verdict.ranks) == (kind, (1,))


def test_a_library_that_sleeps_holds_nothing_in_c():
    sleeps = dataclasses.replace(
        rank(1, main=("/v/lib/python3.11/site-packages/lock.py:3 in wait", AT)),
        waits_in="hrtimer_nanosleep",
    )
    assert verdict_of(rank(0, WAITS), sleeps).kind is Kind.WAITS
    held = dataclasses.replace(sleeps, threads=((python_stacks.NO_PYTHON, AT),))
    assert verdict_of(rank(0, WAITS), held).kind is Kind.HELD


def test_a_rank_that_leaves_with_an_exception_has_raised():
    leaves = rank(1, main=("leaves with ValueError", AT))
    verdict = verdict_of(rank(0, WAITS), leaves)
    assert (verdict.kind, verdict.ranks) == (Kind.RAISED, (1,))
    assert verdict.lines[1].endswith(f"is at {AT}, and leaves with ValueError.")
    # One that C code had for a moment, and that Python never saw, is none.
    assert verdict_of(rank(0, WAITS), leaves, threads=((AT,),)).kind is Kind.COMPUTING


def test_ranks_that_have_left_and_whose_processes_have_not_ended():
    generates = (AT, f"{TENSORFLOW}/data/ops/from_generator_op.py:1 in x")
    left = ("/usr/lib/python3.11/threading.py:3 in join", "/v/tfhvd/compat/iterators.py:9 in stop")
    ranks = [dataclasses.replace(rank(r, done=5), threads=(left, generates)) for r in (0, 1)]
    verdict = verdict_of(*ranks)
    assert (verdict.kind, verdict.ranks, verdict.hangs) == (Kind.LEFT, (0, 1), False)
    assert verdict.lines[1] == f"Ranks 0-1 (host n1) are at {AT}."
    # One that makes an iterator has not left.
    makes = rank(1, main=("/v/tfhvd/compat/iterators.py:9 in init", AT))
    assert verdict_of(rank(0), makes).kind is Kind.UNKNOWN


def test_a_generator_that_another_thread_runs_is_the_line():
    generates = (
        "/home/ann/data.py:3 in rows",
        f"{TENSORFLOW}/data/ops/from_generator_op.py:1 in x",
    )
    stacks = ((AT,), generates)
    waits = dataclasses.replace(rank(1), threads=stacks)
    verdict = verdict_of(rank(0, WAITS), waits)
    assert (verdict.kind, verdict.ranks) == (Kind.INPUT, (1,))
    assert verdict.lines[1].endswith("is at /home/ann/data.py:3 in rows.")
    assert verdict_of(rank(0, WAITS), waits, cpu=1.0).kind is Kind.COMPUTING


def test_ranks_that_wait_for_different_collectives():
    other = collective(name="metric")
    verdict = verdict_of(rank(0, WAITS), rank(1, other))
    assert (verdict.kind, verdict.ranks) == (Kind.DIFFERENT, (0, 1))
    assert "  It waits for allreduce 'metric' (4 kB, train.py:7 in step), for 17.0 s." in (
        verdict.lines
    )


@pytest.mark.parametrize(
    ("stack", "changes", "hangs"),
    [
        ((AT,), {}, True),
        ((AT,), {"wakeups": 6}, True),  # looked at, or it polls for something once a while
        ((AT,), {"wakeups": 60}, False),
        ((AT,), {"all_wakeups": 600}, True),  # its threads have nothing to do with it
        ((f"{TENSORFLOW}/ops/x.py:3 in iterator_get_next", AT), {"all_wakeups": 600}, False),
        ((f"{TENSORFLOW}/ops/x.py:3 in iterator_get_next", AT), {"all_wakeups": 9}, True),
    ],
)
def test_who_wakes_up_again_and_again_does_not_hang(stack, changes, hangs):
    waits = rank(0, WAITS)
    odd = rank(1, main=stack)
    after = [later(waits, all_wakeups=8), later(odd, **changes)]
    verdict = judge([waits, odd], after)
    assert (verdict.ranks, verdict.hangs) == ((1,), hangs)


def test_of_ranks_that_differ_the_fewer_are_named():
    other = collective(name="metric")
    verdict = verdict_of(rank(0, WAITS), rank(2, other), rank(1, WAITS))
    assert (verdict.kind, verdict.ranks) == (Kind.DIFFERENT, (2,))


def of_orders(*ranks):
    """Of each rank what it has done, one letter a collective, and what it waits for."""
    looks = []
    for number, (done, waits_for) in enumerate(ranks):
        past = [collective(n, name, agreed=6.0, ended=6.0) for n, name in enumerate(done, 1)]
        looks.append(rank(number, *past, collective(len(done) + 1, waits_for), done=len(done)))
    return verdict_of(*looks)


def test_what_all_have_done_equally_often_comes_in_another_order():
    found = of_orders(("abab", "a"), ("abab", "b"), ("abab", "a"))
    assert (found.kind, found.ranks) == (Kind.ORDER, (1,))
    assert "the same collectives in a different order" in found.lines[0]
    assert any("same order" in line for line in found.lines)


@pytest.mark.parametrize(("done", "extra"), [("aa", "extra"), ("aaaam", "m")])
def test_what_was_never_done_or_more_seldom_is_called_by_some_only(done, extra):
    found = of_orders((done, "a"), (done, extra), (done, "a"))
    assert (found.kind, found.ranks) == (Kind.DIFFERENT, (1,))


def test_who_waits_elsewhere_is_named_rather_than_who_waits_for_it():
    verdict = verdict_of(rank(0, WAITS), rank(1, collective(name="metric")), rank(2))
    assert (verdict.kind, verdict.ranks) == (Kind.WAITS, (2,))


def test_a_rank_that_is_gone_at_the_second_look():
    first = [rank(0, WAITS), rank(1)]
    verdict = judge(first, [later(first[0])])
    assert (verdict.kind, verdict.ranks) == (Kind.DEAD, (1,))


def test_a_stopped_rank_in_the_middle_of_a_collective():
    runs = collective(agreed=6.0, began=6.0)
    verdict = verdict_of(rank(0, runs), rank(1, runs), state="T")
    assert (verdict.kind, verdict.ranks) == (Kind.STOPPED, (1,))
    assert verdict.lines[-1].startswith("Type `kill -CONT 101` on host n1")


def test_of_a_stopped_rank_there_are_no_stacks():
    why = "no stacks: the process is stopped (SIGSTOP); kill -CONT continues it"
    verdict = verdict_of(rank(0, WAITS), rank(1, main=(why,)), state="T")
    assert verdict.lines[1] == "Rank 1 (host n1, process 101)."


def test_nobody_is_named_where_nobody_is_missing():
    assert verdict_of(rank(0, WAITS), rank(1, WAITS)).ranks == ()
    verdict = verdict_of(rank(0, WAITS, size=2), rank(1, WAITS, size=2))
    assert (verdict.kind, verdict.ranks) == (Kind.UNKNOWN, ())
    alone = verdict_of(rank(0, WAITS))
    assert (alone.kind, alone.ranks) == (Kind.ELSEWHERE, ())
    of_a_set = collective(name="g (process set 1)")
    assert verdict_of(rank(0, of_a_set, size=2), rank(1, size=2)).ranks == ()


def test_two_ranks_that_do_different_things_have_no_common_reason():
    verdict = judge(
        [rank(0, WAITS), rank(1), rank(2)],
        [later(rank(0, WAITS)), later(rank(1)), later(rank(2), cpu=1.9)],
    )
    assert (verdict.kind, verdict.ranks) == (Kind.UNKNOWN, (1, 2))


def test_how_far_the_odd_rank_has_come_and_where_the_kernel_has_it():
    late = dataclasses.replace(
        rank(1), record=record(1, epoch=2, step=37, size=2), waits_in="futex_wait_queue"
    )
    verdict = verdict_of(rank(0, WAITS), late)
    at = f"{AT}, in the kernel's futex_wait_queue, after step 37 of epoch 2."
    assert verdict.lines[1].endswith(at)


def test_a_control_group_that_keeps_something_back():
    verdict = verdict_of(rank(0, WAITS), rank(1), cpu=0.3, throttled=1.5)
    assert "kept rank 1 from running for 1.5 of the last 2.0 s" in verdict.lines[2]
    verdict = verdict_of(rank(0, WAITS), rank(1), cpu=0.3, memory_shortages=4)
    assert "control group of rank 1 is at the limit of its memory" in verdict.lines[2]
    assert len(verdict_of(rank(0, WAITS), rank(1), cpu=0.3, throttled=0.1).lines) == 4


def test_of_many_ranks_the_lines_are_few(tmp_path):
    waiting = [rank(number, WAITS, size=256) for number in range(256) if number != 77]
    verdict = verdict_of(*waiting, rank(77, size=256))
    assert (verdict.kind, verdict.ranks) == (Kind.WAITS, (77,))
    assert len(verdict.lines) == 4
    assert verdict.lines[2].startswith("Ranks 0-76, 78-255 wait for allreduce 'loss'")
    apart = [rank(n, collective(name=str(n)), main=(f"/a.py:{n} in f",)) for n in range(256)]
    assert len(verdict_of(*apart).lines) <= 20
    looks = [dict(enumerate(apart)), dict(enumerate(map(later, apart)))]
    assert len(hang_report.lines(verdict_of(*apart), looks, tmp_path)) <= 25
    idle = [rank(n, main=(f"/a.py:{n} in f",), size=256) for n in range(1, 256, 2)]
    waiting = [rank(n, collective(name=str(n)), size=256) for n in range(0, 256, 2)]
    lines = verdict_of(*waiting, *idle).lines
    assert len(lines) <= 20
    assert "124 more ranks are elsewhere." in lines


def test_the_line_of_an_operation_is_not_the_users():
    assert not is_users("<string>:189 in tfhvd_allreduce")
    assert is_users("<string>:3 in <module>")  # of `python -c`
    assert is_users("/home/me/train.py:86 in every_step")


def test_a_job_that_goes_on():
    waits_anew = record(0, collective(2), done=8)
    verdict = verdict_of(rank(1, done=5), rank(0, WAITS, done=5), record=waits_anew)
    assert verdict.kind is Kind.PROGRESS
    verdict = verdict_of(rank(0), rank(1))
    assert (verdict.kind, verdict.ranks) == (Kind.UNKNOWN, ())
    assert f"Ranks 0-1 (host n1) are at {AT}." in verdict.lines


def test_a_job_that_ends_while_it_is_looked_at_does_not_hang():
    waits, odd = rank(0, WAITS), rank(1)
    ended = dataclasses.replace(odd, state="Z")
    assert not judge([waits, odd], [later(waits, state=""), later(odd)]).hangs
    assert not judge([waits, odd], [later(waits), later(odd, state="Z")]).hangs
    assert judge([waits, ended], [later(waits), later(ended)]).hangs
