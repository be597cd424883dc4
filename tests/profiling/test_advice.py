"""Each advice of the report, tried: whoever takes it does not get it again, and has shorter steps.

What is slow is slow by a sleep, by work of many times the rest of a step, or by hundreds of
operations, so that the shorter step is no matter of the machine.
"""

import contextlib
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import control_groups
import numpy as np
import pytest
import tensorflow as tf
from children import busy

import tfhvd as hvd

pytestmark = [pytest.mark.ranks(2), pytest.mark.thorough]
SLOW = 0.03  # seconds
STEPS = 10

Step = Callable[[], None]


def profiled(step: Step):
    """A report of some steps, after two that are not in it."""
    step()
    step()
    profile = hvd.profile(STEPS, quiet=True)
    while profile.report is None:
        step()
        profile.step()
    return profile.report


def averaged(report, part: str) -> float:
    return statistics.fmean(report.seconds(rank, part) for rank in report.steps)


def usual(*reports) -> float:
    """How long a step takes, whatever else the machine has done during some of them."""
    return statistics.median(
        step.whole for report in reports for steps in report.steps.values() for step in steps
    )


def tried(before: Step, after: Step, advice: str, part: str) -> str:
    """Takes an advice about a part of the steps, or "whole" ones; returns the report of before."""
    first, second = profiled(before), profiled(after)
    text = "\n".join(first.lines())
    assert advice in text, text
    later = "\n".join(second.lines())
    assert advice not in later, later
    assert averaged(second, part) < averaged(first, part) / 2, f"{text}\n{later}"
    assert usual(second) < usual(first), f"{text}\n{later}"
    return text


@contextlib.contextmanager
def confined(*group) -> Iterator[Callable[[], None]]:
    """Has rank 1 in a control group until it is let out, by a call on all ranks.

    Args:
        group: what `control_groups.made` is given.
    """
    with contextlib.ExitStack() as stack:
        why = ""
        if hvd.rank() == 1:
            try:
                back = control_groups.own(group[0])
                file = stack.enter_context(control_groups.made(*group))
                # The group can be removed once it is empty.
                stack.callback(back.write_text, str(os.getpid()))
                file.write_text(str(os.getpid()))
            except (control_groups.NoRightError, OSError) as error:
                why = str(error)
        why = hvd.broadcast_object(why, 1, name="why")
        if why:
            pytest.skip(f"this needs the right to make control groups: {why}")

        def let_out() -> None:
            if hvd.rank() == 1:
                back.write_text(str(os.getpid()))

        yield let_out


@contextlib.contextmanager
def first_come() -> Iterator[None]:
    """Has this thread run before all that is not like it, where the user may arrange that."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def elements(slow_ranks) -> tf.data.Dataset:
    def generate() -> Iterator[float]:
        for _ in range(STEPS + 3):
            if hvd.rank() in slow_ranks:
                time.sleep(SLOW)
            yield 1.0

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    signature = tf.TensorSpec((), tf.float32)
    return tf.data.Dataset.from_generator(generate, output_signature=signature).with_options(
        options
    )


def reading(data: tf.data.Dataset) -> Step:
    iterator = iter(data)
    return lambda: hvd.allreduce(next(iterator), name="read")


@pytest.mark.parametrize(
    ("slow", "complaint"),
    [((1,), "It waits for its input"), ((0, 1), "All ranks wait for their input for")],
    ids=["one rank", "all ranks"],
)
def test_a_cache_for_slow_input(slow, complaint):
    data = elements(slow)
    cached = data.cache()
    for _ in cached:
        pass
    said = tried(reading(data), reading(cached.repeat()), "a cache, prefetching", "input")
    assert complaint in said


def test_garbage_that_is_frozen():
    cycles: list[list] = [[] for _ in range(300_000)]
    for cycle in cycles:
        cycle.append(cycle)

    def step() -> None:
        if hvd.rank() == 1:
            gc.collect()
        hvd.allreduce(1.0, name="collect")

    has_frozen = []

    def frozen() -> None:
        if not has_frozen:
            gc.freeze()
            has_frozen.append(True)
        step()

    try:
        tried(step, frozen, "Call gc.freeze()", "garbage")
    finally:
        gc.unfreeze()


def test_as_much_to_compute_as_the_others():
    large = tf.random.stateless_normal([400, 400], [1, 2])

    @tf.function
    def work(times):
        x = large
        for _ in tf.range(times):
            x = tf.tanh(large @ x)
        return tf.reduce_sum(x)

    def of(times: int) -> Step:
        return lambda: hvd.allreduce(work(times), name="work")

    uneven = of(40 if hvd.rank() == 1 else 2)
    tried(uneven, of(2), "Give it as much to compute as the others", "computing")


def test_a_container_with_more_processors():
    """Both versions of control groups have quotas, and they strike in any part of a step."""
    large = tf.random.stateless_normal([400, 400], [1, 2])

    @tf.function
    def step():
        x = large
        for _ in tf.range(4):
            x = tf.tanh(large @ x)
        return hvd.allreduce(tf.reduce_sum(x), name="work")

    with confined(*control_groups.quota(15)) as let_out:
        allowed = []

        def after() -> None:
            if not allowed:
                let_out()
                allowed.append(True)
            step()

        said = tried(step, after, "Give its container more processors", "whole")
    assert "It is kept from running by its CPU quota" in said


def test_as_much_data_as_the_memory_holds():
    """A group's limit counts what it maps of files; what is beyond it is read again and again.

    In any order, as what a program uses lies in memory: one after the other the kernel reads pages
    ahead, so that hardly any is missing where it is used.
    """
    limit = 64 << 20
    with (
        # Not in a file system that is itself in memory.
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,
        confined(*control_groups.memory(limit)),
    ):
        path = Path(folder) / "data"
        with path.open("wb") as file:
            file.write(bytes(3 * limit // 2))
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        data = np.memmap(path, np.uint8, "r")

        def reading(part: np.ndarray) -> Step:
            random = np.random.default_rng(1)

            def step() -> None:
                if hvd.rank() == 1:
                    part[random.integers(len(part) >> 12, size=100) << 12].sum()  # a byte a page
                hvd.allreduce(1.0, name="read")

            return step

        said = tried(
            reading(data), reading(data[: limit // 8]), "use smaller batches, or fewer", "other"
        )
        assert "It reads memory back from the disk" in said
        del data


def test_a_processor_with_something_else_on_it():
    """Each rank has a processor of its own, and rank 1's has others on it, for a while.

    Other tests run on these processors meanwhile; but not before who is to have one alone.
    """
    own = sorted(os.sched_getaffinity(0))
    if len(own) < 2:
        pytest.skip("needs two processors")

    def step() -> None:
        end = time.thread_time() + SLOW
        while time.thread_time() < end:
            pass
        hvd.allreduce(1.0, name="work")

    reports = []
    os.sched_setaffinity(0, {own[0 if hvd.rank() == 0 else -1]})
    try:
        for others in (3, 0):
            others_here = others if hvd.rank() == 1 else 0
            with busy(others_here), contextlib.nullcontext() if others_here else first_come():
                reports.append(profiled(step))
    finally:
        os.sched_setaffinity(0, own)
    first, second = reports
    assert (first.straggler.rank, first.straggler.cause) == (1, "preempted"), first.lines()
    assert averaged(second, "waiting") < averaged(first, "waiting") / 2, second.lines()
    assert usual(second) < usual(first), second.lines()


def test_callbacks_of_one_rank():
    def alike() -> None:
        time.sleep(SLOW)
        hvd.allreduce(1.0, name="log")

    def one_more() -> None:
        if hvd.rank() == 0:
            time.sleep(2 * SLOW)  # writes a log
        alike()

    tried(one_more, alike, "what only one rank does", "waiting")


def test_many_small_collectives_as_one_group():
    tensors = [tf.ones(10) for _ in range(150)]

    @tf.function
    def chain():
        # Each waits for the one before, as in a program that uses each result at once.
        x = tensors[0]
        for number in range(len(tensors)):
            x = hvd.allreduce(x, name=f"chain.{number}")
        return x

    grouped = tf.function(lambda: hvd.grouped_allreduce(tensors, name="group"))
    # Ten steps of the group last 10 ms, less than what else a machine may be busy with: in turns,
    # that hits both alike. Where it keeps a rank from running, the report speaks of that instead.
    firsts, seconds = zip(*[(profiled(chain), profiled(grouped)) for _ in range(5)], strict=True)
    advice = "pass many tensors to one grouped_allreduce"
    given = [["\n".join(report.lines()) for report in reports] for reports in (firsts, seconds)]
    assert any(advice in text for text in given[0]), given[0]
    assert not any(advice in text for text in given[1]), given[1]
    steps = [[f"{usual(report):.5f}" for report in reports] for reports in (firsts, seconds)]
    assert usual(*seconds) < usual(*firsts), steps


def test_fewer_passes_that_communicate():
    gradient = tf.ones([8 << 20])
    calls = [0]

    def every(passes: int) -> Step:
        def step() -> None:
            calls[0] += 1
            if calls[0] % passes == 0:
                hvd.allreduce(gradient, name="large")

        return step

    first, second = profiled(every(1)), profiled(every(4))
    text = "\n".join(first.lines())
    assert "backward_passes_per_step" in text, text
    assert averaged(second, "communication") < averaged(first, "communication") / 2
    assert usual(second) < usual(first)
