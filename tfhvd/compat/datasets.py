"""Facts about a pipeline of `tf.data`, and its seeds, which only private parts of it tell.

Only warnings depend on this: if a release of TensorFlow tells less (2.16 to 2.21 tell all), a
mistake goes unnoticed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfhvd.compat import private


@dataclasses.dataclass
class Pipeline:
    """What the steps are that a dataset is made by.

    Attributes:
        batched: whether it makes batches.
        sharded: whether it takes one of several parts.
        unordered: whether its elements come in the order in which they happen to be ready.
        seeds: of each shuffle, the two numbers that its order depends on; (0, 0) for no seed.
    """

    batched: bool = False
    sharded: bool = False
    unordered: bool = False
    seeds: list[tuple[int, int]] = dataclasses.field(default_factory=list)


def pipeline_of(dataset: tf.data.Dataset) -> Pipeline:
    """Looks at the steps of a dataset; at those within functions, as of `interleave`, it cannot."""
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
    """Makes the seeds of a function's operations depend on this, not on `tf.random.set_seed`.

    That one may differ from rank to rank. Called while a function is traced; where `tf.data` does
    not trace them (`enable_debug_mode`), the program's own seed stays.
    """
    if not tf.executing_eagerly():
        tf.compat.v1.set_random_seed(seed)


def counted(
    dataset: tf.data.Dataset, handed_out: Callable[[], None], ended: Callable[[], None]
) -> Any:
    """Returns an iterator of a dataset that tells of each element that `next` returns.

    A function that it is passed to counts nothing. Where TensorFlow has no such class (2.16 to 2.21
    have it), it raises UnavailableError.

    Args:
        dataset: what to iterate over, eagerly.
        handed_out: called after each element.
        ended: called once there are no more.
    """
    base: Any = private.of_module(
        "tensorflow.python.data.ops.iterator_ops", "OwnedIterator", "count batches"
    )

    class Counted(base):
        """An iterator that tells what `next` does."""

        def __next__(self) -> Any:
            try:
                element = super().__next__()
            except StopIteration:
                ended()
                raise
            handed_out()
            return element

    return Counted(dataset)
