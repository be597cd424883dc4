"""What is timed for a workload: a package's collectives, and TensorFlow's own share of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tfhvd.bench.collectives import Collective
from tfhvd.bench.measure import Subject
from tfhvd.bench.workloads import TensorSet

IDENTITY = "tf.identity"


class WrongResultError(Exception):
    """A collective gave something else than it should: nothing that follows means anything."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How tensors are made and calls are run.

    Attributes:
        device: of TensorFlow, "CPU:0" or "GPU:0".
        eager: call the operations one by one, not in a tf.function.
    """

    device: str = "CPU:0"
    eager: bool = False

    def compiled(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """Returns `run` as it is to be timed: over when it returns."""
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
    """One collective of one tensor.

    Args:
        name: the subject's.
        package: with Horovod's API.
        collective: which one.
        given: how many elements each rank gives.
        dtype: of them, as TensorFlow calls it.
        setting: how it is run.

    Raises:
        WrongResultError: the result is not what the collective is to give.
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


def of_tensors(name: str, package: ModuleType, tensors: TensorSet, setting: Setting) -> Subject:
    """One allreduce for each tensor of a set, as a training step has it. Raises as above."""
    made = _make(tensors, package.rank() + 1, setting)

    def run() -> list[Any]:
        return [
            package.allreduce(x, op=package.Sum, name=f"bench.gradient.{i}")
            for i, x in enumerate(made)
        ]

    step = setting.compiled(run)
    total = package.size() * (package.size() + 1) // 2
    for result in step():
        _check(result, total, f"{name} {tensors.name}", package.rank())
    return Subject(name, step)


def identity(tensors: TensorSet, setting: Setting, dtype: str = "float32") -> Subject:
    """The same step with tf.identity in place of each collective: TensorFlow's own cost."""
    import tensorflow as tf

    made = _make(tensors, 1, setting, dtype)
    return Subject(IDENTITY, setting.compiled(lambda: [tf.identity(x) for x in made]))


def memcpy(size: int) -> Subject:
    """One copy of as many bytes in memory: the floor of what touching them once costs."""
    source, target = np.ones(max(1, size), np.uint8), np.empty(max(1, size), np.uint8)
    return Subject("memcpy", lambda: np.copyto(target, source))


def _make(
    tensors: TensorSet, value: int, setting: Setting, dtype: str = "float32"
) -> Sequence[Any]:
    import tensorflow as tf

    with tf.device(setting.device):
        return [tf.cast(tf.fill(shape, value), dtype) for shape in tensors.shapes]


def _check(result: Any, expected: Any, what: str, rank: int) -> None:
    import tensorflow as tf

    received = tf.cast(result, tf.float64).numpy()
    if np.shape(expected) not in ((), received.shape) or not np.all(received == expected):
        raise WrongResultError(
            f"Wrong result of {what} on rank {rank}. Received: shape {received.shape}, values from "
            f"{received.min()} to {received.max()}. Expected: values from {np.min(expected)} to "
            f"{np.max(expected)}. Please report it, with the command."
        )
