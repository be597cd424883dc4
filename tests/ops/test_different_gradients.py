"""Ranks that have gradients of different variables, or kinds: an error, at once, on all ranks."""

from __future__ import annotations

import mpi
import pytest
import user_messages
from variants import also
from with_xla import needs_xla

PROGRAM = """
import tensorflow as tf, tfhvd as hvd

hvd.init()
last = hvd.size() - 1
variables = [tf.Variable(tf.ones([4, 3]), name=name) for name in "abc"]

def step(parts, rows=()):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        used = [tf.gather(v, [0, 1]) if i in rows else v for i, v in enumerate(variables)]
        loss = tf.add_n([(i + 1.0) * tf.reduce_sum(used[i]) for i in parts])
    return tape.gradient(loss, variables)

def fails(*arguments):
    try:
        step(*arguments)
        print("passes")
    except tf.errors.InvalidArgumentError as error:
        print(error.message)

here = hvd.rank() == last
"""
CASES = {
    "none": ("fails((0, 2) if here else (0, 1, 2))", "there is no gradient of b"),
    "first": ("fails((1, 2) if here else (0, 1, 2))", "there is no gradient of a"),
    "last": ("fails((0, 1) if here else (0, 1, 2))", "there is no gradient of c"),
    "rows": ("fails((0, 1, 2), [1] if here else ())", "there are tf.IndexedSlices for b"),
}


@pytest.mark.thorough
@pytest.mark.variant
@pytest.mark.parametrize("size", [2, also(3)])
def test_each_rank_names_its_variables(size):
    calls = [call for call, _ in CASES.values()]
    # As many of equal shapes: they are not to be added to each other.
    calls.append("fails((1, 2) if here else (0, 2))")
    # What has failed on all ranks alike is no reason not to go on.
    calls.append("print([g if g is None else float(g[0, 0]) for g in step((0, 2))])")
    calls.append("print([float(g[0, 0]) for g in step((0, 1, 2))])")
    env = {"TFHVD_STALL_CHECK_TIME_SECONDS": "600"}
    job = mpi.run_ranks(size, PROGRAM + "\n".join(calls), env=env)
    assert job.code == 0, job
    for number, rank in enumerate(job.ranks):
        *said, other, without, right = rank.out.splitlines()
        for line, (_, text) in zip(said, CASES.values()):
            is_last = number == size - 1
            here = text if is_last else "every variable has a dense gradient"
            assert f"On this rank {here}. Compute the same loss on every rank, " in line, job
        assert f"On this rank there is no gradient of {'a' if is_last else 'b'}. " in other, job
        assert without == "[1.0, None, 3.0]", job
        if size == 2 and number == 1:
            user_messages.check("a gradient is missing", said[2])
            user_messages.check("a gradient has rows", said[3])
        assert len(said) == len(CASES) and right == "[1.0, 2.0, 3.0]", job


# Each rank lacks another gradient of three of equal shapes: two of each bucket fit to each other.
IN_A_FUNCTION = """
@tf.function(jit_compile={compiled})
def function(*parts):
    return [g for g in step(parts) if g is not None]

print([float(g[0, 0]) for g in function(0, 1, 2)])
try:
    print(function(*((1, 2) if here else (0, 2))))
except tf.errors.OpError as error:
    print(error.message)
print([float(g[0, 0]) for g in function(0, 1, 2)])
"""
IN_KERAS = """
import {package}
K = {package}

class Parts(K.Model):
    def __init__(self):
        super().__init__()
        self.kernels = [K.layers.Dense(4, use_bias=False) for _ in range(3)]
        self.parts = (0, 1, 2)

    def build(self, shape):
        for kernel in self.kernels:
            kernel.build(shape)
        self.built = True

    def call(self, x):
        return sum(self.kernels[i](x) for i in self.parts)

model = Parts()
model.build((None, 4))
x = tf.ones([8, 4]) * (1.0 + hvd.rank())
optimizer = hvd.DistributedOptimizer(K.optimizers.{optimizer}(0.01))
model.compile(optimizer, "mse", run_eagerly={eager}, jit_compile=False)
model.parts = (1, 2) if here else (0, 2)
try:
    model.fit(x, x, batch_size=8, verbose=0)
    print("passes")
except tf.errors.OpError as error:
    print(error.message)
"""
LACKING = "Received: rank 0: no {0}/1.{1}; rank 1: no {0}/0.{2}. Expected: the same on every rank."


@pytest.mark.parametrize("compiled", [False, also(True, marks=[needs_xla])])
def test_a_function_never_adds_up_gradients_of_different_variables(compiled):
    job = mpi.run_ranks(2, PROGRAM + IN_A_FUNCTION.format(compiled=compiled))
    assert job.code == 0, job
    expected = LACKING.format("DistributedGradientTape", "b", "a")
    for rank in job.ranks:
        before, *said, after = rank.out.splitlines()
        assert expected in "\n".join(said), job
        assert before == after == "[1.0, 2.0, 3.0]", job


@pytest.mark.thorough
@pytest.mark.variant
@pytest.mark.parametrize(
    ("package", "optimizer", "eager"),
    [
        ("keras", "SGD", False),
        ("keras", "SGD", True),
        also("tf_keras", "SGD", False),
        ("tf_keras", "legacy.SGD", False),
    ],
)
def test_fit_never_adds_up_gradients_of_different_variables(package, optimizer, eager):
    program = IN_KERAS.format(package=package, optimizer=optimizer, eager=eager)
    job = mpi.run_ranks(2, PROGRAM + program)
    assert job.code == 0, job
    for number, rank in enumerate(job.ranks):
        if eager:
            lacks = f"no gradient of {'parts/dense_1' if number == 0 else 'parts/dense'}/kernel"
            assert f"On this rank there is {lacks}." in rank.out, job
        else:
            name = optimizer.rpartition(".")[2]
            assert LACKING.format(f"Distributed{name}", "kernel", "kernel") in rank.out, job
