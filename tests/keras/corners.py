"""Corners of training, as data: what all ranks train is what one rank with the joined data trains.

A row of CORNERS is a corner, and CORNERS is all there is to extend. It says how its model, loss and
batches are made; what it does not say is as in a plain regression:

    "mean absolute error": Corner(loss=lambda keras: keras.losses.MeanAbsoluteError()),

Every corner is trained in each WAY (the `fit` of Keras 3 and of tf_keras, and a loop with a tape),
with equal and unequal batches, as a graph and compiled, on 2 and 3 ranks: `cases` lists them. In
the default suite a corner costs one case, its `usual` one; those that differ from it in one respect
are `thorough`; tests/long/corner_cases.py runs all, with data that are drawn anew.

The one rank is plain Keras, by `train_on_batch`, on every rank beside the distributed training.
Weights are compared; with `metrics` also what `fit` notes of its epochs, validation included, and
what `evaluate` returns after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from flavours import assert_same_on_all_ranks, keras_of, set_seed, values
from variants import also
from with_xla import needs_xla

import tfhvd
import tfhvd.keras as hvd
from tfhvd.gradients.sample_weights import StepOf

WAYS = {"fit": "keras", "fit of tf_keras": "tf_keras", "loop": "keras"}  # and its Keras
SIZES = {  # samples of each step, by rank; ranks beyond them begin anew
    "equal": [(6, 6, 6)] * 3,
    "unequal": [(9, 2, 5), (1, 7, 4), (9, 2, 5)],
}
EPOCHS = 2
CLOSE = 3e-6  # of the largest weight, and of a metric

Batch = tuple[Any, ...]  # inputs, targets, maybe sample weights: each a tensor, or nested ones
Make = Callable[[Any], Any]  # from a Keras


def dense(keras: Any, over_ranks: bool) -> Any:
    """A model for four numbers a sample; layers that look at other ranks do so if `over_ranks`."""
    layers = keras.layers
    return keras.Sequential(
        [layers.Input((4,)), layers.Dense(3, activation="tanh"), layers.Dense(1)]
    )


def rows(random: np.random.Generator, samples: int) -> Batch:
    """Inputs [samples, 4] and targets [samples, 1]."""
    x = random.normal(size=(samples, 4)).astype("float32")
    return x, np.sum(x**2, axis=1, keepdims=True)


def joined(parts: Sequence[Batch]) -> Batch:
    """One batch of several: what one rank would have."""
    return tf.nest.map_structure(lambda *own: tf.concat(own, 0), *parts)


@dataclasses.dataclass(frozen=True)
class Case:
    """How a corner is trained: see the module."""

    way: str = "fit"
    sizes: str = "unequal"
    compiled: bool = False

    def __str__(self) -> str:
        return f"{self.way}, {self.sizes}{', compiled' if self.compiled else ''}"


@dataclasses.dataclass(frozen=True)
class Corner:
    """A row.

    Attributes:
        model: takes a Keras, and whether the model is trained by several ranks.
        batch: draws so many samples.
        join: makes one batch of the ranks'.
        loss: for `compile`; in a loop it is called with targets, outputs and sample weights.
        optimizer: for the model that one rank trains, and distributed for the others.
        distribute: makes the optimizer a distributed one.
        tape: makes a tape a distributed one.
        metrics: for `compile`, if metrics are compared.
        weight: in a loop, from a batch to the number that the loss divides by.
        compile: more arguments of `compile`.
        ways: that there are of it.
        usual: the case that the default suite has.
        close: how far from one rank's it may be.
    """

    model: Callable[[Any, bool], Any] = dense
    batch: Callable[[np.random.Generator, int], Batch] = rows
    join: Callable[[Sequence[Batch]], Batch] = joined
    loss: Make = lambda keras: keras.losses.MeanSquaredError()
    optimizer: Make = lambda keras: keras.optimizers.SGD(0.05)
    distribute: Callable[[Any], Any] = hvd.DistributedOptimizer
    tape: Callable[[tf.GradientTape], Any] = tfhvd.DistributedGradientTape
    metrics: Make | None = None
    weight: Callable[[Batch], Any] = lambda batch: tf.shape(batch[0])[0]
    compile: dict[str, Any] = dataclasses.field(default_factory=dict)
    ways: Sequence[str] = tuple(WAYS)
    usual: Case = Case()
    close: float = CLOSE


def weighted_rows(random: np.random.Generator, samples: int) -> Batch:
    return (*rows(random, samples), random.uniform(0.1, 2.0, samples).astype("float32"))


def regularized(keras: Any, over_ranks: bool) -> Any:
    layers, decay = keras.layers, keras.regularizers.L2(0.1)
    return keras.Sequential(
        [
            layers.Input((4,)),
            layers.Dense(3, activation="tanh", kernel_regularizer=decay),
            layers.Dense(1, activity_regularizer=decay),
        ]
    )


CORNERS: dict[str, Corner] = {
    "regression": Corner(usual=Case("loop", "equal", compiled=True)),
    "sample weights": Corner(batch=weighted_rows),
    "regularizers": Corner(model=regularized),
}


def cases(corner: Corner) -> Iterator[Case]:
    """Lists all cases of a corner."""
    for way in corner.ways:
        for sizes in SIZES:
            for compiled in (False, True):
                yield Case(way, sizes, compiled)


def parameters() -> list[Any]:
    """Lists corners and cases as `parametrize` takes them: usual ones, and those beside them."""
    found = []
    for name, corner in CORNERS.items():
        usual = dataclasses.asdict(corner.usual)
        for case in cases(corner):
            differs = sum(usual[key] != value for key, value in dataclasses.asdict(case).items())
            if differs <= 1:
                mark = also if differs else pytest.param
                marks = [needs_xla] if case.compiled else []
                found.append(mark(name, case, marks=marks, id=f"{name}: {case}"))
    return found


def check(corner: Corner, case: Case, seed: int = 5) -> None:
    """Trains both ways, and compares."""
    keras = keras_of(WAYS[case.way])
    of_ranks = draw(corner, case, seed)
    own = [parts[hvd.rank()] for parts in of_ranks]
    whole = [corner.join(parts) for parts in of_ranks]
    plain, expected = one_rank(keras, corner, whole)
    model, actual = (loop if case.way == "loop" else fit)(keras, corner, case, own)
    assert_same_on_all_ranks(model.trainable_variables)
    begun = values(new_model(keras, corner).trainable_variables)
    pairs = list(zip(values(model.trainable_variables), values(plain.trainable_variables)))
    largest = max(np.abs(weight).max() for _, weight in pairs)
    assert any(np.abs(w - b).max() > 0.01 * largest for (_, w), b in zip(pairs, begun))
    off = [float(np.abs(mine - ones).max() / largest) for mine, ones in pairs]
    assert max(off) <= corner.close, f"weights are off by {off} of the largest"
    for name, value in actual.items():
        np.testing.assert_allclose(value, expected[name], rtol=corner.close, err_msg=name)


def draw(corner: Corner, case: Case, seed: int) -> list[list[Batch]]:
    """Returns the batches of each step, by rank."""
    random = np.random.default_rng(seed)
    found = []
    for of_ranks in SIZES[case.sizes]:
        counts = [of_ranks[rank % len(of_ranks)] for rank in range(hvd.size())]
        parts = [corner.batch(random, count) for count in counts]
        found.append([tf.nest.map_structure(tf.convert_to_tensor, part) for part in parts])
    return found


def new_model(keras: Any, corner: Corner, over_ranks: bool = False, seed: int = 0) -> Any:
    set_seed(keras, seed)
    return corner.model(keras, over_ranks)


def compiled(keras: Any, corner: Corner, model: Any, optimizer: Any, **arguments: Any) -> Any:
    if corner.metrics is not None:
        arguments["metrics"] = corner.metrics(keras)
    model.compile(optimizer, corner.loss(keras), **arguments, **corner.compile)
    return model


def one_rank(keras: Any, corner: Corner, batches: list[Batch]) -> tuple[Any, dict[str, Any]]:
    """Trains on the joined batches, with Keras alone; returns what it notes as well."""
    model = new_model(keras, corner)
    compiled(keras, corner, model, corner.optimizer(keras))
    noted: dict[str, list[float]] = {}
    more = {"reset_metrics": False} if keras.__name__ == "tf_keras" else {}
    for _ in range(EPOCHS):
        model.reset_metrics()
        for x, y, *weight in batches:
            logs = model.train_on_batch(x, y, *weight, return_dict=True, **more)
        for name, value in logs.items():
            noted.setdefault(name, []).append(np.array(value))
        if corner.metrics is not None:
            validated = model.evaluate(dataset(batches), return_dict=True, verbose=0)
            for name, value in validated.items():
                noted.setdefault(f"val_{name}", []).append(np.array(value))
                noted[f"evaluated {name}"] = np.array(value)
    return model, noted


def dataset(batches: list[Batch]) -> tf.data.Dataset:
    """Yields the batches; what differs between their shapes is unknown before."""

    def signature(*parts: Any) -> tf.TypeSpec:
        if isinstance(parts[0], tf.RaggedTensor):
            return tf.RaggedTensorSpec([None, None], parts[0].dtype)
        shapes = {tuple(part.shape) for part in parts}
        shape = [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes)]
        return tf.TensorSpec(shape, parts[0].dtype)

    return tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=tf.nest.map_structure(signature, *batches)
    )


def fit(keras: Any, corner: Corner, case: Case, batches: list[Batch]) -> tuple[Any, dict[str, Any]]:
    """Trains this rank's part; returns what `fit` and `evaluate` say if metrics are compared."""
    # Rank 0's weights are the reference's; the others begin elsewhere, and are brought there.
    model = new_model(keras, corner, over_ranks=True, seed=hvd.rank())
    optimizer = corner.distribute(corner.optimizer(keras))
    compiled(keras, corner, model, optimizer, jit_compile=case.compiled)
    callbacks = [hvd.BroadcastGlobalVariablesCallback(0), hvd.MetricAverageCallback()]
    data = dataset(batches)
    validates = {} if corner.metrics is None else {"validation_data": data}
    history = model.fit(data, epochs=EPOCHS, verbose=0, callbacks=callbacks, **validates)
    if corner.metrics is None:
        return model, {}
    found = model.evaluate(data, return_dict=True, verbose=0, callbacks=callbacks[1:])
    return model, {**history.history, **{f"evaluated {key}": v for key, v in found.items()}}


def loop(
    keras: Any, corner: Corner, case: Case, batches: list[Batch]
) -> tuple[Any, dict[str, Any]]:
    """Trains this rank's part with a tape."""
    model = new_model(keras, corner, over_ranks=True, seed=hvd.rank())
    optimizer, loss_of = corner.optimizer(keras), corner.loss(keras)
    tfhvd.broadcast_variables(model.variables, root_rank=0)

    @tf.function(jit_compile=case.compiled)
    def step(batch: Batch) -> None:
        x, y, *weight = batch
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True), *weight)
            loss += sum(model.losses)
        with StepOf(corner.weight(batch)):
            gradients = corner.tape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    for _ in range(EPOCHS):
        for batch in batches:
            step(batch)
    return model, {}
