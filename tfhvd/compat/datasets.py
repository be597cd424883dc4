"""Facts about a pipeline of `tf.data`, and its seeds, from private parts of the datasets.

Only warnings depend on these facts. If a release of TensorFlow hides some of them (2.16 to 2.21
hide none), tfhvd does not warn of a mistake.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfhvd.compat import private


@dataclasses.dataclass
class Pipeline:
    """The steps of a dataset.

    Attributes:
        batched: whether a step makes batches.
        sharded: whether a step takes one of several parts.
        unordered: whether the order of elements depends on which one is ready first.
        seeds: for each shuffle, the two numbers that determine its order; (0, 0) for no seed.
    """

    batched: bool = False
    sharded: bool = False
    unordered: bool = False
    seeds: list[tuple[int, int]] = dataclasses.field(default_factory=list)


def pipeline_of(dataset: tf.data.Dataset) -> Pipeline:
    """Reads the steps of a dataset, except those inside functions, such as `interleave`'s."""
    found = Pipeline(unordered=dataset.options().deterministic is False)
    for step in _steps(dataset):
        kind = type(step).__name__
        found.batched |= "BatchDataset" in kind  # _BatchDataset, _PaddedBatchDataset and others
        found.sharded |= kind == "_ShardDataset"
        found.unordered |= getattr(step, "_deterministic", None) == "false"
        if kind == "_ShuffleDataset":
            seed, seed2 = getattr(step, "_seed", None), getattr(step, "_seed2", None)
            if seed is not None and seed2 is not None:
                found.seeds.append((int(seed), int(seed2)))
    return found


def _steps(dataset: Any) -> Iterator[Any]:
    yield dataset
    inputs = getattr(dataset, "_inputs", None)
    for step in inputs() if inputs is not None else ():
        yield from _steps(step)


def seed_graph(seed: int) -> None:
    """Makes the seeds of a function's operations depend on `seed`, not on `tf.random.set_seed`.

    The seed of `tf.random.set_seed` may differ between ranks. Call this while the function is
    traced. If `tf.data` does not trace functions (`enable_debug_mode`), the program's seed remains.
    """
    if not tf.executing_eagerly():
        tf.compat.v1.set_random_seed(seed)


def counted(
    dataset: tf.data.Dataset, handed_out: Callable[[], None], ended: Callable[[], None]
) -> Any:
    """Returns an iterator of a dataset that reports each element from `next`.

    A function that gets the iterator as an argument reports nothing. If TensorFlow does not have
    the class of iterators (2.16 to 2.21 have it), `counted` raises UnavailableError.

    Args:
        dataset: the dataset to iterate over, eagerly.
        handed_out: called after each element.
        ended: called when there are no more elements.
    """
    base: Any = private.of_module(
        "tensorflow.python.data.ops.iterator_ops", "OwnedIterator", "count batches"
    )

    class Counted(base):
        """An iterator that reports its elements and its end."""

        def __next__(self) -> Any:
            try:
                element = super().__next__()
            except StopIteration:
                ended()
                raise
            handed_out()
            return element

    return Counted(dataset)
