"""Corners of training, as data: what all ranks train is what one rank with the joined data trains.

A row of CORNERS is a corner, and CORNERS is all there is to extend. It says how its model, loss and
batches are made; what it does not say is as in a plain regression:

    "mean absolute error": Corner(loss=lambda keras: keras.losses.MeanAbsoluteError()),

Every corner is trained in each of WAYS (by the `fit` of Keras 3 and of tf_keras, by
`train_on_batch`, and in a loop with a tape), with equal and unequal batches, as a graph and
compiled, on 2 and 3 ranks: `cases` lists them. In the default suite a corner costs one case, its
`usual` one; those that differ from it in one respect are `thorough`; tests/long/corner_cases.py
runs all, with data that are drawn anew.

The one rank is plain Keras, by `train_on_batch`, on every rank beside the distributed training.
Weights are compared; with `metrics` also what `fit` notes of its epochs, validation included, and
what `evaluate` returns after it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from flavours import assert_same_on_all_ranks, keras_of, set_seed, values
from variants import also
from with_xla import needs_xla

import tfhvd
import tfhvd.keras as hvd

WAYS = {  # and the Keras of each
    "fit": "keras",
    "fit of tf_keras": "tf_keras",
    "train_on_batch": "keras",
    "loop": "keras",
}
SIZES = {  # samples of each step, by rank; ranks beyond them begin anew
    "equal": [(6, 6, 6)] * 3,
    "unequal": [(9, 2, 5), (1, 7, 4), (9, 2, 5)],
    "unequal, fewer steps": [(9, 2, 5), (1, 7, 4), (5, 0, 3)],  # on rank 1
}
JOINS = ("fit", "fit of tf_keras")  # the ways in which ranks may have different numbers of steps
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
        sizes: likewise, of SIZES.
        compiles: whether XLA has all its operations.
        usual: the case that the default suite has, if the row is `shown` by it.
        shown: whether it is; thorough tests have all rows.
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
    sizes: Sequence[str] = tuple(SIZES)
    compiles: bool = True
    usual: Case = Case()
    shown: bool = True
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


def normalized(keras: Any, over_ranks: bool) -> Any:
    layers = keras.layers
    # tf_keras' fused one has another formula for the moving variance.
    how = {"synchronized": True} if over_ranks else {}
    if keras.__name__ == "tf_keras" and not over_ranks:
        how = {"fused": False}
    return keras.Sequential(
        [
            layers.Input((4,)),
            layers.Dense(3, activation="tanh"),
            layers.BatchNormalization(**how),
            layers.Dense(2, activation="tanh"),
            layers.BatchNormalization(**how),
            layers.Dense(1),
        ]
    )


STEPS = 5  # of the longest sequence
TOKENS = 35  # the rows of all ranks together are more than these in some steps, less in others


def sequences(random: np.random.Generator, samples: int) -> Batch:
    """Inputs [samples, STEPS, 4], zeros after the end of each, and a target for each step."""
    x = random.normal(size=(samples, STEPS, 4)).astype("float32")
    ends = random.integers(1, STEPS + 1, size=(samples, 1))
    x *= (np.arange(STEPS) < ends)[..., np.newaxis]
    return x, np.sum(x**2, axis=-1, keepdims=True) + 1


def masked(keras: Any, over_ranks: bool) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((STEPS, 4)),
            layers.Masking(),
            layers.SimpleRNN(3, return_sequences=True),
            layers.Dense(1),
        ]
    )


def unmasked(batch: Batch) -> tf.Tensor:
    return tf.math.count_nonzero(tf.reduce_any(batch[0] != 0, axis=-1), dtype=tf.int32)


def sequences_and_ends(random: np.random.Generator, samples: int) -> Batch:
    x, y = sequences(random, samples)
    return x, (y, y[:, 0])


def two_outputs(keras: Any, over_ranks: bool) -> Any:
    layers = keras.layers
    inputs = layers.Input((STEPS, 4))
    steps = layers.SimpleRNN(3, return_sequences=True)(layers.Masking()(inputs))
    end = layers.SimpleRNN(2, kernel_regularizer=keras.regularizers.L2(0.1))(inputs)
    return keras.Model(inputs, [layers.Dense(1)(steps), layers.Dense(1)(end)])


def tokens(random: np.random.Generator, samples: int) -> Batch:
    """Inputs [samples, STEPS] and targets [samples, 1]."""
    x = random.integers(0, TOKENS, size=(samples, STEPS))
    return x.astype("int32"), random.normal(size=(samples, 1)).astype("float32")


def embedded(keras: Any, over_ranks: bool) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((STEPS,), dtype="int32"),
            layers.Embedding(TOKENS, 3),
            layers.GlobalAveragePooling1D(),
            layers.Dense(1),
        ]
    )


def with_context(random: np.random.Generator, samples: int) -> Batch:
    """Inputs of which the first one is for the whole batch."""
    x, y = rows(random, samples)
    return {"a_context": np.ones((1, 4), "float32"), "samples": x}, y


def joined_with_context(parts: Sequence[Batch]) -> Batch:
    x, y = joined(parts)
    return {**x, "a_context": parts[0][0]["a_context"]}, y


def of_context(keras: Any, over_ranks: bool) -> Any:
    layers = keras.layers
    context, samples = layers.Input((4,), name="a_context"), layers.Input((4,), name="samples")
    both = layers.Add()([layers.Dense(4)(context), samples])
    outputs = layers.Dense(1)(layers.Dense(3, activation="tanh")(both))
    return keras.Model({"a_context": context, "samples": samples}, outputs)


def packed(random: np.random.Generator, samples: int) -> Batch:
    """Tokens one behind the other, the number of the sample of each, and targets of samples."""
    lengths = random.integers(1, STEPS + 1, size=samples)
    of = np.repeat(np.arange(samples), lengths)
    tokens = random.normal(size=(len(of), 4)).astype("float32")
    y = np.zeros((samples, 1), "float32")
    np.add.at(y[:, 0], of, tokens[:, 0] ** 2)
    return {"a_tokens": tokens, "of": of.astype("int32")}, y


def joined_packed(parts: Sequence[Batch]) -> Batch:
    begins = np.cumsum([0, *(len(y) for _, y in parts)])
    moved = [({**x, "of": x["of"] + begin}, y) for (x, y), begin in zip(parts, begins)]
    return joined(moved)


def of_packed(keras: Any, over_ranks: bool) -> Any:
    class Gathered(keras.layers.Layer):
        def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
            return tf.math.segment_sum(*inputs)

        def compute_output_shape(self, shapes: Any) -> Any:
            return (None, shapes[0][-1])

    layers = keras.layers
    tokens, of = layers.Input((4,), name="a_tokens"), layers.Input((), name="of", dtype="int32")
    sums = Gathered()([layers.Dense(3, activation="tanh")(tokens), of])
    return keras.Model({"a_tokens": tokens, "of": of}, layers.Dense(1)(sums))


def labels(random: np.random.Generator, samples: int) -> Batch:
    """Inputs [samples, 4] and two classes that each sample may be in."""
    x = random.normal(size=(samples, 4)).astype("float32")
    return x, (x[:, :2] + random.normal(size=(samples, 2)) > 0.3).astype("float32")


def two_classes(keras: Any, over_ranks: bool) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [layers.Input((4,)), layers.Dense(3, "tanh"), layers.Dense(2, "sigmoid")]
    )


def of_every_kind(keras: Any) -> list[Any]:
    """Metrics that are means, and others; with a number for each class, and one for all."""
    metrics = keras.metrics
    return [
        "mae",
        metrics.AUC(50, name="auc"),
        metrics.AUC(50, curve="PR", multi_label=True, name="pr"),
        metrics.Precision(name="precision"),
        metrics.Recall([0.3, 0.6], name="recall"),
        metrics.F1Score(average="macro", threshold=0.5, name="f1"),
        metrics.F1Score(threshold=0.5, name="f1_of_each"),
        metrics.BinaryIoU(name="iou"),
        metrics.R2Score(name="r2"),
        metrics.RootMeanSquaredError(name="rmse"),
        metrics.SensitivityAtSpecificity(0.5, name="sensitivity"),
    ]


FIT = ("fit", "fit of tf_keras", "train_on_batch")
# The train_on_batch of tf_keras refuses inputs of different lengths.
OF_KERAS_3 = tuple(way for way in WAYS if way != "fit of tf_keras")
CORNERS: dict[str, Corner] = {
    "regression": Corner(usual=Case("loop", "equal", compiled=True)),
    "sample weights": Corner(batch=weighted_rows, usual=Case("train_on_batch")),
    "regularizers": Corner(model=regularized),
    "synchronized batch normalization": Corner(model=normalized, close=2e-5),
    "masked sequences": Corner(model=masked, batch=sequences, ways=FIT),
    "masked sequences in a loop": Corner(
        model=masked,
        batch=sequences,
        loss=lambda keras: mean_of_unmasked,
        weight=unmasked,
        shown=False,
        ways=["loop"],
        usual=Case("loop", compiled=True),
    ),
    "an output for each step and one for the end": Corner(
        model=two_outputs,
        batch=sequences_and_ends,
        loss=lambda keras: ["mse", "mae"],
        ways=FIT,
        shown=False,
    ),
    "a sum as the loss": Corner(
        model=regularized,
        loss=lambda keras: keras.losses.MeanSquaredError(reduction="sum"),
        optimizer=lambda keras: keras.optimizers.SGD(0.005),
        ways=FIT,
    ),
    "divided by the sum of sample weights": Corner(
        batch=weighted_rows,
        loss=lambda keras: keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"),
        weight=lambda batch: tf.reduce_sum(batch[2]),
        ways=["fit", "train_on_batch", "loop"],
    ),
    "an embedding": Corner(model=embedded, batch=tokens, usual=Case("loop")),
    "accumulated passes, of two epochs": Corner(
        optimizer=lambda keras: keras.optimizers.SGD(0.05, gradient_accumulation_steps=2),
        ways=["fit", "train_on_batch"],
        sizes=["equal"],
        usual=Case("fit", "equal"),
    ),
    "top-k of all elements": Corner(
        distribute=lambda optimizer: hvd.DistributedOptimizer(
            optimizer, compression=hvd.Compression.topk(1.0, least=1)
        ),
        tape=functools.partial(
            tfhvd.DistributedGradientTape, compression=hvd.Compression.topk(1.0, least=1)
        ),
    ),
    "an input for the whole batch": Corner(
        model=of_context,
        batch=with_context,
        join=joined_with_context,
        weight=lambda batch: tf.shape(batch[1])[0],
        ways=OF_KERAS_3,
    ),
    "packed tokens": Corner(
        model=of_packed,
        batch=packed,
        join=joined_packed,
        weight=lambda batch: tf.shape(batch[1])[0],
        ways=OF_KERAS_3,
        compiles=False,  # XLA has no SegmentSum
    ),
    "metrics of every kind": Corner(
        model=two_classes,
        batch=labels,
        metrics=of_every_kind,
        shown=False,
        optimizer=lambda keras: keras.optimizers.SGD(0.5),
        ways=["fit", "fit of tf_keras"],
        close=1e-5,
    ),
}


def cases(corner: Corner) -> Iterator[Case]:
    """Lists all cases of a corner."""
    for way in corner.ways:
        for sizes in corner.sizes:
            if 0 in itertools.chain(*SIZES[sizes]) and way not in JOINS:
                continue
            for compiled in (False, True)[: 1 + corner.compiles]:
                yield Case(way, sizes, compiled)


def mean_of_unmasked(y: tf.Tensor, prediction: tf.Tensor) -> tf.Tensor:
    """Over the steps that a mask leaves; the inputs are zeros, and the targets ones, at others."""
    there = tf.cast(y != 1, tf.float32)
    return tf.reduce_sum(tf.square(y - prediction) * there) / tf.reduce_sum(there)


def parameters() -> list[Any]:
    """Lists corners and cases as `parametrize` takes them: usual ones, and those beside them."""
    found = []
    for name, corner in CORNERS.items():
        usual = dataclasses.asdict(corner.usual)
        for case in cases(corner):
            differs = sum(usual[key] != value for key, value in dataclasses.asdict(case).items())
            if differs <= 1:
                mark = pytest.param if corner.shown and not differs else also
                marks = [needs_xla] if case.compiled else []
                found.append(mark(name, case, marks=marks, id=f"{name}: {case}"))
    return found


def check(corner: Corner, case: Case, seed: int = 5) -> None:
    """Trains both ways, and compares."""
    keras = keras_of(WAYS[case.way])
    of_ranks = draw(corner, case, seed)
    own = [parts[hvd.rank()] for parts in of_ranks if parts[hvd.rank()]]
    whole = [corner.join([part for part in parts if part]) for parts in of_ranks]
    plain, expected = one_rank(keras, corner, whole)
    train = {"loop": loop, "train_on_batch": by_batches}.get(case.way, fit)
    model, actual = train(keras, corner, case, own)
    assert_same_on_all_ranks(model.trainable_variables)
    begun = values(new_model(keras, corner).trainable_variables)
    pairs = list(zip(values(model.trainable_variables), values(plain.trainable_variables)))
    largest = max(np.abs(weight).max() for _, weight in pairs)
    assert any(np.abs(w - b).max() > 0.01 * largest for (_, w), b in zip(pairs, begun))
    off = [float(np.abs(mine - ones).max() / largest) for mine, ones in pairs]
    assert max(off) <= corner.close, f"weights are off by {off} of the largest"
    for name, value in actual.items():
        # R2Score is one minus a quotient: near 0 it has as many places as 1 has.
        np.testing.assert_allclose(
            value, expected[name], rtol=corner.close, atol=1e-6, err_msg=name
        )


def draw(corner: Corner, case: Case, seed: int) -> list[list[Batch]]:
    """Returns the batches of each step, by rank; empty tuples for none."""
    random = np.random.default_rng(seed)
    found = []
    for of_ranks in SIZES[case.sizes]:
        counts = [of_ranks[rank % len(of_ranks)] for rank in range(hvd.size())]
        parts = [corner.batch(random, count) if count else () for count in counts]
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
        with mock.patch.object(model, "reset_metrics"):  # which Keras 3 calls for each batch
            for x, y, *weight in batches:
                logs = model.train_on_batch(x, y, *weight, return_dict=True, **more)
        for name, value in logs.items():
            noted.setdefault(name, []).append(np.array(value))
        if corner.metrics is not None:
            validated = model.evaluate(of_known_length(batches), return_dict=True, verbose=0)
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


def of_known_length(batches: list[Batch]) -> tf.data.Dataset:
    """Yields the batches.

    Where data of unknown length end, Keras 3 counts once more the samples of a batch, if their
    number is known when a step is traced: its mean metrics are too small then.
    """
    return dataset(batches).apply(tf.data.experimental.assert_cardinality(len(batches)))


def fit(keras: Any, corner: Corner, case: Case, batches: list[Batch]) -> tuple[Any, dict[str, Any]]:
    """Trains this rank's part; returns what `fit` and `evaluate` say if metrics are compared."""
    # Rank 0's weights are the reference's; the others begin elsewhere, and are brought there.
    model = new_model(keras, corner, over_ranks=True, seed=hvd.rank())
    optimizer = corner.distribute(corner.optimizer(keras))
    compiled(keras, corner, model, optimizer, jit_compile=case.compiled)
    callbacks = [hvd.BroadcastGlobalVariablesCallback(0), hvd.MetricAverageCallback()]
    data = (dataset if corner.metrics is None else of_known_length)(batches)
    validates = {} if corner.metrics is None else {"validation_data": data}
    history = model.fit(data, epochs=EPOCHS, verbose=0, callbacks=callbacks, **validates)
    if corner.metrics is None:
        return model, {}
    found = model.evaluate(data, return_dict=True, verbose=0, callbacks=callbacks[1:])
    return model, {**history.history, **{f"evaluated {key}": v for key, v in found.items()}}


def by_batches(
    keras: Any, corner: Corner, case: Case, batches: list[Batch]
) -> tuple[Any, dict[str, Any]]:
    """Trains this rank's part by `train_on_batch`."""
    model = new_model(keras, corner, over_ranks=True, seed=hvd.rank())
    tfhvd.broadcast_variables(model.variables, root_rank=0)
    optimizer = corner.distribute(corner.optimizer(keras))
    compiled(keras, corner, model, optimizer, jit_compile=case.compiled)
    for _ in range(EPOCHS):
        for x, y, *weight in batches:
            model.train_on_batch(x, y, *weight)
    return model, {}


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
        with hvd.batch_weight(corner.weight(batch)):
            gradients = corner.tape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    for _ in range(EPOCHS):
        for batch in batches:
            step(batch)
    return model, {}
