"""The subjects of a workload: a package's collectives, and TensorFlow's share of their time."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tfhvd.bench.collectives import Collective
from tfhvd.bench.measure import Subject
from tfhvd.bench.workloads import TensorSet

OPS, TAPE, OPTIMIZER = "ops", "tape", "optimizer"
# The ways to reduce gradients, and the names of the same steps without a reduction.
ALONE = {OPS: "tf.identity", TAPE: "plain tape", OPTIMIZER: "plain optimizer"}
CONCAT = "one tf.concat"


class WrongResultError(Exception):
    """A collective has returned a wrong result, which makes all times meaningless."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """The device of tensors, and the way to run calls.

    Attributes:
        device: TensorFlow's device, "CPU:0" or "GPU:0".
        eager: whether to call the operations one by one, not in a tf.function.
    """

    device: str = "CPU:0"
    eager: bool = False

    def compiled(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """Returns `run` in the form to time: complete when it returns."""
        import tensorflow as tf

        ready = run if self.eager else tf.function(run, autograph=False)
        if not self.device.startswith("GPU"):
            return ready

        def finish() -> Any:
            result = ready()
            tf.test.experimental.sync_devices()
            return result

        return finish


def of_collective(
    name: str,
    package: ModuleType,
    collective: Collective,
    given: int,
    dtype: str,
    setting: Setting,
) -> Subject:
    """Returns one collective on one tensor, after a check of its result.

    Args:
        name: the name of the subject.
        package: a package with Horovod's API.
        collective: the collective.
        given: the number of elements of each rank's input.
        dtype: TensorFlow's name of their type.
        setting: how to run the collective.

    Raises:
        WrongResultError: if the result is wrong.
    """
    import tensorflow as tf

    with tf.device(setting.device):
        tensor = tf.cast(tf.fill([given], package.rank() + 1), dtype)
        step = setting.compiled(
            lambda: collective.call(package, tensor, f"bench.{collective.name}")
        )
    parts = collective.gives(given, package.rank(), package.size())
    expected = np.concatenate([np.full(count, value, np.float64) for count, value in parts])
    _check(step(), expected, f"{name} {collective.name}", package.rank())
    return Subject(name, step)


def workload(tensors: TensorSet, through: str) -> str:
    """Returns the name of a set with its way of reduction: "500 x 1 KiB, tape"."""
    return tensors.name if through == OPS else f"{tensors.name}, {through}"


def of_tensors(
    name: str,
    package: ModuleType,
    tensors: TensorSet,
    setting: Setting,
    through: str = OPS,
    concatenated: bool = False,
) -> Subject:
    """Returns the reduction of all tensors of a set, as in a training step.

    Args:
        name: the name of the subject.
        package: a package with Horovod's API.
        tensors: the gradients.
        setting: how to run the step.
        through: OPS for one allreduce per tensor; TAPE or OPTIMIZER for those of the package.
        concatenated: whether to take the plain step instead, with one allreduce of the tf.concat of
            all tensors, whose result is split again, as users would write it by hand.

    Raises:
        WrongResultError: if a result is not the sum.
    """
    made = _make(tensors, package.rank() + 1, setting)
    step, results = _STEPS[through](made, setting, package, concatenated)
    run = setting.compiled(step)
    total = package.size() * (package.size() + 1) // 2
    for result in results(run()):
        _check(result, total, f"{name} {tensors.name}", package.rank())
    return Subject(name, run)


def alone(
    tensors: TensorSet, setting: Setting, through: str = OPS, dtype: str = "float32"
) -> Subject:
    """Returns the same step without a reduction, which is TensorFlow's share of the time."""
    step, _ = _STEPS[through](_make(tensors, 1, setting, dtype), setting, None, False)
    return Subject(ALONE[through], setting.compiled(step))


# A step, and a function that reads the reduced gradients from the result of its first call.
_Step = tuple[Callable[[], Any], Callable[[Any], Sequence[Any]]]


def _concatenated(gradients: Sequence[Any], package: ModuleType) -> list[Any]:
    """Reduces all gradients as one tensor."""
    import tensorflow as tf

    whole = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
    reduced = package.allreduce(whole, op=package.Sum, name="bench.concat")
    sizes = [gradient.shape.num_elements() for gradient in gradients]
    parts = tf.split(reduced, sizes)
    return [tf.reshape(part, gradient.shape) for part, gradient in zip(parts, gradients)]


def _through_ops(
    made: Sequence[Any], setting: Setting, package: ModuleType | None, concatenated: bool
) -> _Step:
    import tensorflow as tf

    del setting
    if package is None:
        return lambda: [tf.identity(x) for x in made], list
    if concatenated:
        return lambda: _concatenated(made, package), list

    def step() -> list[Any]:
        return [
            package.allreduce(x, op=package.Sum, name=f"bench.gradient.{i}")
            for i, x in enumerate(made)
        ]

    return step, list


def _through_tape(
    made: Sequence[Any], setting: Setting, package: ModuleType | None, concatenated: bool
) -> _Step:
    import tensorflow as tf

    variables = _variables(made, setting)

    def step() -> Any:
        with tf.GradientTape() as tape:
            outputs = [tf.identity(variable) for variable in variables]
        if package is not None and not concatenated:
            tape = package.DistributedGradientTape(tape, op=package.Sum)
        gradients = tape.gradient(outputs, variables, output_gradients=list(made))
        if package is not None and concatenated:
            gradients = _concatenated(gradients, package)
        return gradients

    return step, list


def _through_optimizer(
    made: Sequence[Any], setting: Setting, package: ModuleType | None, concatenated: bool
) -> _Step:
    import tensorflow as tf

    variables = _variables(made, setting)
    optimizer = tf.keras.optimizers.SGD(1.0)
    if package is not None and not concatenated:
        keras = importlib.import_module(f"{package.__name__}.keras")
        optimizer = keras.DistributedOptimizer(optimizer, op=package.Sum)
    optimizer.build(variables)

    def step() -> None:
        # New tensors in each step, like gradients: an optimizer may forward constants.
        gradients: Sequence[Any] = [tf.identity(x) for x in made]
        if package is not None and concatenated:
            gradients = _concatenated(gradients, package)
        optimizer.apply_gradients(zip(gradients, variables))

    return step, lambda _: [-variable for variable in variables]


_STEPS = {OPS: _through_ops, TAPE: _through_tape, OPTIMIZER: _through_optimizer}


def memcpy(size: int) -> Subject:
    """Returns a copy of `size` bytes in memory: the least time to touch each byte once."""
    source, target = np.ones(max(1, size), np.uint8), np.empty(max(1, size), np.uint8)
    return Subject("memcpy", lambda: np.copyto(target, source))


def _make(
    tensors: TensorSet, value: int, setting: Setting, dtype: str = "float32"
) -> Sequence[Any]:
    import tensorflow as tf

    with tf.device(setting.device):
        return [tf.cast(tf.fill(shape, value), dtype) for shape in tensors.shapes]


def _variables(made: Sequence[Any], setting: Setting) -> list[Any]:
    import tensorflow as tf

    with tf.device(setting.device):
        return [tf.Variable(tf.zeros_like(x)) for x in made]


def _check(result: Any, expected: Any, what: str, rank: int) -> None:
    import tensorflow as tf

    received = tf.cast(result, tf.float64).numpy()
    if np.shape(expected) not in ((), received.shape) or not np.all(received == expected):
        raise WrongResultError(
            f"Wrong result of {what} on rank {rank}. Received: shape {received.shape}, values from "
            f"{received.min()} to {received.max()}. Expected: values from {np.min(expected)} to "
            f"{np.max(expected)}. Please report it, with the command."
        )
