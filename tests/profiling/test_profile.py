"""hvd.profile in loops of ranks of which one is slow on purpose."""

import gc
import os
import statistics
import time

import pytest
import tensorflow as tf
from profile_pages import data_of
from variants import also
from with_xla import needs_xla

import tfhvd as hvd

pytestmark = pytest.mark.ranks(2, 4)
SLOW = 0.02  # seconds a step
STEPS = 8


def data(slow):
    """Elements that take time on one rank, without a prefetch that would hide some of it."""

    def elements():
        while True:
            if hvd.rank() == slow:
                time.sleep(SLOW)
            yield [1.0] * 8

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    found = tf.data.Dataset.from_generator(
        elements, output_signature=tf.TensorSpec((8,), tf.float32)
    )
    return found.batch(1).with_options(options)


def train(mode="graph", slow=None, between=lambda: None):
    """A profile of some steps of a small network."""
    weights = [tf.Variable(tf.random.stateless_normal([8, 8], [1, n])) for n in range(3)]

    def step(x):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            for weight in weights:
                x = tf.tanh(x @ weight)
            loss = tf.reduce_sum(x)
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(0.01 * gradient)

    step = {"eager": step, "graph": tf.function(step)}.get(
        mode, tf.function(step, jit_compile=True)
    )
    profile = None
    for number, x in enumerate(data(slow)):
        step(x)
        between()
        if number == 3:
            profile = hvd.profile(STEPS, quiet=True)
        elif profile is not None and profile.step() is not None:
            return profile.report
    return None


def straggler_of(report):
    """The rank that the others wait for; where there is none, the steps say why."""
    assert report.straggler is not None, "\n".join(report.lines(each_step=True))
    return report.straggler


@pytest.mark.parametrize("mode", ["eager", "graph", also("compiled", marks=[needs_xla])])
def test_slow_input_is_what_the_others_wait_for(mode):
    report = train(mode, slow=1)
    found = straggler_of(report)
    assert (found.rank, found.cause) == (1, "input")
    assert report.seconds(1, "input") >= 0.95 * SLOW
    others = [report.seconds(rank, "input") for rank in report.steps if rank != 1]
    assert found.more == pytest.approx(report.seconds(1, "input") - statistics.median(others))
    for rank, steps in report.steps.items():
        assert len(steps) == STEPS
        assert all(sum(s.parts.values()) == pytest.approx(s.whole, rel=0.01) for s in steps)
        if rank != 1:
            waits = {
                other: sum(step.waits_for.get(other, 0.0) for step in steps)
                for other in report.steps
            }
            assert max(waits, key=waits.__getitem__) == 1
            # With fewer cores than ranks these wait for each other's turns, too.
            if hvd.size() <= (os.cpu_count() or 1):
                assert waits[1] >= 0.95 * sum(step.parts["waiting"] for step in steps)
    # Not the last line where all ranks wait for their input a little, as without a core of its own.
    text = "\n".join(report.lines())
    assert f"wait for rank 1 for {1e3 * found.seconds:.1f} ms a step" in text
    assert "It waits for its input" in text


def test_python_between_the_steps():
    report = train(between=lambda: time.sleep(SLOW if hvd.rank() == 0 else 0))
    found = straggler_of(report)
    assert (found.rank, found.cause) == (0, "other")


def test_garbage():
    cycles = [[] for _ in range(300000)]
    for cycle in cycles:
        cycle.append(cycle)
    report = train(between=lambda: gc.collect() if hvd.rank() == 1 else None)
    found = straggler_of(report)
    assert (found.rank, found.cause) == (1, "garbage")


def test_the_first_rank_prints(capfd):
    with hvd.profile(100) as profile:
        for _ in range(3):
            hvd.allreduce(1.0, name="loss")
            profile.step()
    assert len(profile.report.steps[0]) == 3
    said = capfd.readouterr().out
    assert said.startswith(f"3 steps of {hvd.size()} ranks, in ms a step:\n") == (hvd.rank() == 0)


def test_the_first_rank_writes_a_page(tmp_path, capfd):
    folder = hvd.broadcast_object(tmp_path)
    for name in ("page.html", "no/page.html"):
        with hvd.profile(100, page=folder / name) as profile:
            for _ in range(3):
                hvd.allreduce(1.0, name="loss")
                profile.step()
    said = capfd.readouterr().out
    assert [path.name for path in folder.iterdir()] == ["page.html"]
    if hvd.rank() > 0:
        assert said == ""
        return
    assert f"{folder}/page.html: open it in a browser.\n" in said
    assert "page cannot be written to " + f"{folder}/no/page.html: No such file" in said
    data = data_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert data["steps"] == 3 and data["names"] == ["loss"]
    assert [len(own["collectives"]) for own in data["over_time"]] == [3] * hvd.size()


def test_an_error_ends_it():
    with pytest.raises(ValueError, match="no data"), hvd.profile():
        raise ValueError("no data")
    assert train(slow=0) is not None, "TensorFlow's profiler is free again"


def test_what_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        hvd.profile(0)
