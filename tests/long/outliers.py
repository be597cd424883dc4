"""Trains five models for long: nothing may be said of clean steps, and faults must be named.

    python tests/long/outliers.py [--steps N] [--faults N] [--only MODEL] [--seed S]

Each model is trained by two ranks in a function, at first without a fault: some batches of one rank
are strange (100 times as large, with one record 1,000 times as large, all alike, or drawn from
something else), and the learning rate is ten times as high for 40 steps of each 1,000. No word of
tfhvd's may come. Then faults are put in, one in each 97 steps on one rank: one layer's gradient
times 100, or a bit of the exponent of one value flipped. Prints how many of each kind were named in
their step, and of the others, how many made the gradient's norm 23 times as large. Ends with 1 if a
clean step was named, if a fault was named wrongly, or if a flip of the highest bit of an exponent
was not named although it made the gradient's norm a million and more.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "tests")]

import children  # noqa: E402  (after its folder is on the path)

BATCH = 16
FAR = 23
Batch = tuple[np.ndarray, np.ndarray]


def digits(keras: Any, random: np.random.Generator, joint: np.random.Generator) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input([64]), layers.Dense(32, "relu"), layers.Dense(32, "relu"), layers.Dense(10)]
    )
    centers = joint.normal(size=(10, 64))

    def batch() -> Batch:
        y = random.integers(0, 10, BATCH)
        return (centers[y] + random.normal(size=(BATCH, 64))).astype("float32"), y

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, batch, loss, keras.optimizers.SGD(0.02, momentum=0.9)


def long_tails(keras: Any, random: np.random.Generator, joint: np.random.Generator) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input([8]), layers.Dense(16, "tanh"), layers.Dense(16, "tanh"), layers.Dense(1)]
    )
    weights = joint.normal(size=(8, 1))

    def batch() -> Batch:
        x = random.standard_t(3, size=(BATCH, 8)).astype("float32")
        return x, (x @ weights + random.standard_t(3, size=(BATCH, 1))).astype("float32")

    return model, batch, keras.losses.MeanSquaredError(), keras.optimizers.Adam(1e-3)


def images(keras: Any, random: np.random.Generator, joint: np.random.Generator) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input([12, 12, 1]),
            layers.Conv2D(8, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(8, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4),
        ]
    )
    centers = joint.normal(size=(4, 12, 12, 1))

    def batch() -> Batch:
        y = random.integers(0, 4, BATCH)
        return (centers[y] + 2 * random.normal(size=(BATCH, 12, 12, 1))).astype("float32"), y

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, batch, loss, keras.optimizers.SGD(0.05)


def words(keras: Any, random: np.random.Generator, joint: np.random.Generator) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input([12], dtype="int32"), layers.Embedding(500, 16), layers.LSTM(16)]
    )
    model.add(layers.Dense(1))
    often = 1 / np.arange(1, 501)
    means = joint.normal(size=500)

    def batch() -> Batch:
        x = random.choice(500, (BATCH, 12), p=often / often.sum())
        return x.astype("int32"), (means[x].sum(1) > 0).astype("float32")[:, None]

    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    return model, batch, loss, keras.optimizers.RMSprop(1e-3)


def attention(keras: Any, random: np.random.Generator, joint: np.random.Generator) -> Any:
    del joint
    layers = keras.layers
    inputs = layers.Input([8], dtype="int32")
    x = layers.Embedding(40, 16)(inputs)
    for _ in range(2):
        x = x + layers.MultiHeadAttention(2, 8)(layers.LayerNormalization()(x), x)
        x = x + layers.Dense(16)(layers.Dense(32, "gelu")(layers.LayerNormalization()(x)))
    model = keras.Model(inputs, layers.Dense(40)(layers.LayerNormalization()(x)))

    def batch() -> Batch:
        first, by = random.integers(0, 40, (BATCH, 1)), random.integers(1, 4, (BATCH, 1))
        whole = ((first + by * np.arange(9)) % 40).astype("int32")
        return whole[:, :8], whole[:, 1:]

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, batch, loss, keras.optimizers.AdamW(3e-3)


MODELS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (digits, long_tails, images, words, attention)
}


def made_strange(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """One batch that is as none should be."""
    how = random.integers(4)
    if x.dtype.kind == "i":
        drawn = random.integers(0, x.max() + 1, x.shape)
        return [np.broadcast_to(x[:1], x.shape), drawn, np.full_like(x, x.max()), x[::-1]][
            how
        ].astype(x.dtype)
    one = x.copy()
    one[0] *= 1000
    return [x * 100, one, x * 0, 10 * random.normal(size=x.shape)][how].astype(x.dtype)


@dataclasses.dataclass
class Fault:
    """What is wrong in a step.

    Attributes:
        which: the variable of whose gradient.
        bit: the bit that is flipped; None: all gradients of the layer are 100 times as large.
        at: in which value.
        grew: whether the gradient's norm is far larger for it.
        norm: the gradient's, with it; 0 if it is not finite.
    """

    which: int
    bit: int | None
    at: int
    grew: bool = False
    norm: float = 0.0


def draw_fault(shapes: list[tuple[int, ...]], random: np.random.Generator) -> Fault:
    bit = None if random.random() < 0.3 else int(random.integers(23, 31))
    which = int(random.integers(len(shapes)))
    return Fault(which, bit, int(random.integers(np.prod(shapes[which]))))


@contextlib.contextmanager
def said(into: list[str]) -> Iterator[None]:
    """Collects what this process writes to its standard error."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            into += [line for line in file.read().decode().splitlines() if "far larger" in line]


class Training:
    """One model on one rank.

    Args:
        name: of MODELS.
        label: what its updates are called.
        seed: of what is drawn.
    """

    def __init__(self, name: str, label: str, seed: int) -> None:
        import keras
        import tensorflow as tf

        import tfhvd.keras as hvd

        keras.utils.set_random_seed(seed)
        self.own = np.random.default_rng([seed, hvd.rank()])
        joint = np.random.default_rng(seed)
        self._model, self._batch, self._loss, self.plain = MODELS[name](keras, self.own, joint)
        self._optimizer = hvd.DistributedOptimizer(self.plain, name=label)
        self.variables = self._model.trainable_variables
        self._optimizer.build(self.variables)
        hvd.broadcast_variables(self._model.variables, 0)
        self.layers = [v.path.rpartition("/")[0] for v in self.variables]
        self._step = tf.function(self._one_step)

    def _one_step(self, x: Any, y: Any, factors: Any, flips: Any, at: Any) -> Any:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = self._loss(y, self._model(x, training=True))
        changed, norms = [], []
        for i, gradient in enumerate(tape.gradient(value, self.variables)):
            right = tf.convert_to_tensor(gradient)
            bits = tf.bitcast(tf.reshape(right, [-1]), tf.int32)
            bits ^= tf.scatter_nd([[at[i]]], [flips[i]], tf.shape(bits))
            changed.append(tf.reshape(tf.bitcast(bits, tf.float32), right.shape) * factors[i])
            norms.append([tf.norm(tf.cast(g, tf.float64)) for g in (right, changed[-1])])
        self._optimizer.apply_gradients(zip(changed, self.variables))
        return norms

    def step(self, strange: bool = False, fault: Fault | None = None) -> np.ndarray:
        """Makes a step; returns each gradient's norm, as it is and as it is with the fault."""
        x, y = self._batch()
        x = made_strange(x, self.own) if strange else x
        count = len(self.variables)
        factors = np.ones(count, "float32")
        flips, at = np.zeros(count, "int32"), np.zeros(count, "int32")
        if fault is not None and fault.bit is None:
            layer = self.layers[fault.which]
            factors[[i for i, each in enumerate(self.layers) if each == layer]] = 100
        elif fault is not None:
            flips[fault.which], at[fault.which] = 1 << fault.bit, fault.at
        return np.array(self._step(x, y, factors, flips, at))

    @contextlib.contextmanager
    def put_back(self) -> Iterator[None]:
        """Trains on afterwards as if nothing had been."""
        state = [*self._model.variables, *self._optimizer.variables]
        before = [variable.numpy() for variable in state]
        yield
        for variable, value in zip(state, before):
            variable.assign(value)


def named_in(error: Exception) -> str:
    """The layer that an error of TFHVD_ON_OUTLIER=raise names."""
    found = re.search(r"gradient of (\S+) on rank \d+ ", str(error))
    assert found is not None, error
    return found[1].rpartition("/")[0]


def clean(training: Training, options: argparse.Namespace) -> tuple[Counter[str], int]:
    """Trains without a fault; every word is wrong."""
    lines: list[str] = []
    rate = float(training.plain.learning_rate.numpy())
    with said(lines):
        for number in range(options.steps):
            if number % 1000 in (600, 640):
                training.plain.learning_rate.assign(rate * (10 if number % 1000 == 600 else 1))
            training.step(strange=number > 50 and training.own.random() < 0.002)
    return Counter({f"WRONG: {line}": 1 for line in lines}), len(lines)


def with_faults(training: Training, options: argparse.Namespace) -> tuple[Counter[str], int]:
    """Trains with faults; an error must name those of this rank."""
    import tensorflow as tf

    import tfhvd.keras as hvd

    both = np.random.default_rng([options.seed, 7])  # all ranks know when there is one
    faults: dict[int, Fault] = {}
    named: dict[int, str] = {}
    for number in range(97 * options.faults + 1):
        fault, mine = None, number // 97 % 2 == hvd.rank()
        if number % 97 == 96:
            fault = draw_fault([tuple(v.shape) for v in training.variables], both)
        with training.put_back() if fault else contextlib.nullcontext():
            try:
                norms = training.step(fault=fault if mine else None)
            except tf.errors.InvalidArgumentError as error:
                if mine or not fault:
                    named[number] = named_in(error)
                norms = None
        if fault and mine:
            if norms is not None:
                right, wrong = norms[fault.which]
                fault.norm = float(wrong) if np.isfinite(wrong) else 0.0
                fault.grew = bool(right > 0 and fault.norm > FAR * right)
            faults[number] = fault
    counts: Counter[str] = Counter()
    wrong = [f"step {number} has no fault: {named[number]}" for number in named.keys() - faults]
    for number, fault in faults.items():
        told, layer = named.get(number), training.layers[fault.which]
        kind = "one layer times 100" if fault.bit is None else f"bit {fault.bit} flipped"
        if told not in (None, layer):
            wrong.append(f"step {number}, {kind}: {told} and not {layer}")
        if told is None and fault.bit == 30 and fault.norm > 1e6:
            wrong.append(f"step {number}, {kind}: not named, its norm is {fault.norm:.2g}")
        size = f"not named, its norm {FAR} times as large and more" if fault.grew else "not named"
        counts[f"{kind}: {'named' if told else size}"] += 1
    return counts + Counter(f"WRONG: {each}" for each in wrong), len(wrong)


def on_a_rank(options: argparse.Namespace) -> int:
    """Trains the models; returns whether anything is wrong."""
    import tensorflow as tf

    import tfhvd.keras as hvd

    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    wrong = 0
    part = {each.__name__: each for each in (clean, with_faults)}[options.on_a_rank]
    for name in MODELS:
        if options.only not in name:
            continue
        training = Training(name, f"{name}/{part.__name__}", options.seed)
        told = hvd.allgather_object(part(training, options))
        bad = sum(count for _, count in told)
        wrong += bad
        if hvd.rank() == 0:
            print(f"{name}, {part.__name__}:", "WRONG" if bad else "ok", flush=True)
            for kind, count in sorted(sum((each for each, _ in told), Counter()).items()):
                print(f"  {kind}: {count}", flush=True)
    return min(wrong, 1)


def main() -> int:
    """Runs two jobs: without faults, and with them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000, help="clean ones, of each model")
    parser.add_argument("--faults", type=int, default=200, help="of each model")
    parser.add_argument("--only", default="", metavar="MODEL")
    parser.add_argument("--seed", type=int, help="printed where not given")
    parser.add_argument("--on-a-rank", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.on_a_rank:
        return on_a_rank(options)
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    command = [sys.executable, "-m", "tfhvd.launch", "-np", "2", sys.executable]
    words = [__file__, "--steps", options.steps, "--faults", options.faults]
    words += ["--only", options.only, "--seed", seed]
    codes = []
    for part, action in ((clean, "warn"), (with_faults, "raise")):
        own = [*command, *map(str, words), "--on-a-rank", part.__name__]
        environment = children.environment(TFHVD_ON_OUTLIER=action, TF_CPP_MIN_LOG_LEVEL="2")
        codes.append(subprocess.run(own, env=environment, check=False).returncode)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
