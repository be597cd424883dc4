"""A finite but wrong gradient of one rank: whose it is is said in its step; clean steps are not."""

import itertools

import mpi
import numpy as np
import pytest
import tensorflow as tf
import troubleshooting
from variants import also

import tfhvd.keras as hvd
from tfhvd.gradients.options import ReductionOptions
from tfhvd.gradients.reducer import GradientReducer

WAYS = {"eager": lambda step: step, "graph": tf.function}
NUMBERS = itertools.count()
SHAPES = {"first/kernel": [6, 40], "first/bias": [40], "last/kernel": [40, 3], "last/bias": [3]}
on_ranks = pytest.mark.ranks(2, 4)
in_every_way = pytest.mark.parametrize("way", [also("eager"), "graph"])


class Loop:
    """Steps on the gradients of two layers, drawn at random, each rank its own."""

    def __init__(self, way, **options):
        self.variables = [tf.Variable(tf.zeros(shape), name=name) for name, shape in SHAPES.items()]
        self.name = f"outliers.{next(NUMBERS)}"
        reduce = GradientReducer(ReductionOptions(name=self.name, **options))
        self._run = WAYS[way](lambda *gradients: reduce(gradients, self.variables))
        self._random = np.random.default_rng([hvd.rank(), 3])

    def draw(self):
        scale = np.exp(self._random.normal() / 4)  # of the batch
        return [
            (scale * self._random.normal(size=shape)).astype(np.float32)
            for shape in SHAPES.values()
        ]

    def step(self, change=None):
        """Reduces; `change` changes the gradients of this rank."""
        gradients = self.draw()
        if change is not None:
            change(gradients)
        return [g.numpy() for g in self._run(*map(tf.constant, gradients))]


def times_100(gradients):
    for gradient in gradients[2:]:
        gradient *= 100


def flipped(gradients):
    """Flips the highest bit of a value's exponent."""
    gradients[0][4, 7] = 0.3
    gradients[0].view(np.int32)[4, 7] ^= 1 << 30


def everything(gradients):
    for gradient in gradients:
        gradient *= 100


def lines(capfd):
    return [line for line in capfd.readouterr().err.splitlines() if "far larger" in line]


@on_ranks
@in_every_way
def test_layer_rank_and_step_are_named(way, capfd):
    loop = Loop(way)
    for number in range(64):
        loop.step({40: times_100, 50: flipped}.get(number) if hvd.rank() == 1 else None)
    said = lines(capfd)
    assert len(said) == (2 if hvd.rank() == 1 else 0), said
    if said:
        assert "the gradient of last/" in said[0]
        assert f"on rank 1 is far larger than before in update 41 of {loop.name}," in said[0]
        assert "the gradient of first/kernel on rank 1" in said[1]
        assert f"in update 51 of {loop.name}," in said[1]
        assert "TFHVD_ON_OUTLIER=skip" in said[1]


@on_ranks
def test_what_is_no_fault_is_not_said(capfd):
    loop = Loop("graph")
    for number in range(200):
        strange_batch = number % 40 == 30 and hvd.rank() == number // 40 % hvd.size()
        too_high_a_rate = 100 <= number < 120
        loop.step(everything if strange_batch or too_high_a_rate else None)
    both = Loop("graph")
    for number in range(60):  # The data of all ranks change.
        both.step(times_100 if number >= 30 else None)
    assert lines(capfd) == []


@on_ranks
def test_weights_of_ranks_and_other_reductions_change_nothing(capfd):
    from tfhvd.gradients import sample_weights

    for options in ({"op": hvd.Sum}, {"compression": hvd.Compression.fp16}, {"groups": 2}):
        loop = Loop("eager", **options)
        for number in range(20):
            with sample_weights.StepOf(7 * hvd.rank() + 3):
                loop.step(times_100 if number == 15 and hvd.rank() == 1 else None)
        [*said] = lines(capfd)
        assert ["on rank 1" in line and "update 16 of" in line for line in said] == (
            [True] if hvd.rank() == 1 else []
        )


@on_ranks
def test_tensorflow_judges_votes_as_the_engine_does():
    from tfhvd.ops import finite_check

    def vote(rank=None, above=0.0, unusual=0.0):
        values = np.zeros(finite_check._VALUES, np.float32)
        values[[0, 7]] = 1, unusual
        if rank is not None:
            values[8:15] = 1, rank % 64, (rank % 64) ** 2, rank // 64, (rank // 64) ** 2, 2, above
        return values

    for votes, fit in [
        ([vote(), vote()], True),
        ([vote(), vote(1, 6.6)], False),
        ([vote(), vote(70, 6.6)], False),
        ([vote(unusual=1.5), vote(1, 6.6)], True),
        ([vote(unusual=1.5), vote(1, 128.0)], False),
        ([vote(0, 6.6), vote(1, 6.6)], True),
        ([vote(3, 6.6), vote(67, 6.6)], True),
    ]:
        assert finite_check.in_proportion(tf.constant(sum(votes))).numpy() == fit
        assert finite_check.in_proportion(tf.constant(sum(votes) / 2)).numpy() == fit


PROGRAM = """
import sys
import numpy as np
import keras
import tensorflow as tf
import tfhvd.keras as hvd

hvd.init()
keras.utils.set_random_seed(7)
model = keras.Sequential([
    keras.layers.Input([8]),
    keras.layers.Dense(16, "tanh", name="first"),
    keras.layers.Dense(1, name="last"),
])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), name="wrong")
optimizer.build(model.trainable_variables)
random = np.random.default_rng(hvd.rank())

@tf.function
def step(x, noise, factor):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - x[:, :1] - noise) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients = [g * factor for g in gradients[:2]] + gradients[2:]
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

for number in range(64):
    wrong = number == 40 and hvd.rank() == 1
    before = model.get_weights()
    try:
        x, noise = (tf.constant(random.normal(size=[16, n]), tf.float32) for n in (8, 1))
        step(x, noise, tf.constant(100.0 if wrong else 1.0))
    except tf.errors.InvalidArgumentError as error:
        print(f"raised on {hvd.rank()} in {number}:", error.message.replace(chr(10), " "))
    same = all((a == b).all() for a, b in zip(before, model.get_weights()))
    if same:
        print(f"unchanged on {hvd.rank()}: {number}")
graph = step.get_concrete_function(x, noise, tf.constant(1.0)).graph
[look] = [o for o in graph.get_operations() if o.type == "TfhvdFindNotFinite"][-1:]
print(f"sizes on {hvd.rank()}:", look.get_attr("sizes"))
"""


def run(tmp_path, setting):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    job = mpi.run_ranks(2, [str(file)], env={"TFHVD_ON_OUTLIER": setting})
    assert job.code == 0, job
    return "".join(rank.out + rank.err for rank in job.ranks)


@pytest.mark.thorough
@pytest.mark.variant
@pytest.mark.parametrize("setting", ["warn", also("skip"), also("raise"), also("off")])
def test_what_becomes_of_the_update(setting, tmp_path):
    out = run(tmp_path, setting)
    unchanged = [f"unchanged on {rank}: 40" in out for rank in range(2)]
    assert out.count("unchanged on") == sum(unchanged)
    assert unchanged == [setting in ("skip", "raise")] * 2
    said = [line for line in out.splitlines() if "far larger than before" in line]
    assert len(said) == {"warn": 1, "skip": 1, "raise": 2, "off": 0}[setting], out
    assert all(
        "the gradient of sequential/first/" in line and "update 41 of wrong" in line
        for line in said
    )
    if setting == "warn":
        troubleshooting.check("`is far larger than before`", out)
    assert out.count("raised on") == (2 if setting == "raise" else 0)
    assert ("sizes on 0: b''" in out) == (setting == "off")
