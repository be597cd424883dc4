"""shard: this rank's part of the data."""

from __future__ import annotations

from typing import TypeVar

import tensorflow as tf

from tfhvd.compat.datasets import pipeline_of
from tfhvd.data import arrays, datasets
from tfhvd.data.batches import Batches
from tfhvd.data.consistency import Given, check, warn_of_pipeline
from tfhvd.data.partition import UNEVEN, Division
from tfhvd.data.repartition import changes
from tfhvd.runtime.membership import membership
from tfhvd.runtime.process_sets import ProcessSet, checked_id, global_process_set

_Data = TypeVar("_Data")


def shard(
    data: _Data,
    *,
    shuffle: bool = False,
    seed: int = 0,
    epoch: int | tf.Variable = 0,
    uneven: str = "keep",
    buffer_size: int | None = None,
    compare: bool = True,
    process_set: ProcessSet = global_process_set,
) -> _Data:
    """Returns this rank's part of the data: each element is on one rank, once an epoch.

    All ranks give the same data, in the same order; element i of that order, or of the shuffled
    one, is on rank i modulo `size()`. The order depends on `seed` and the number of the epoch, not
    on `tf.random.set_seed`.

    Each iteration of a dataset is one epoch. Arrays and lists are those of the one epoch that is
    given: call it again for the next, or make a dataset of them first.

    In an elastic job each iteration of a dataset is divided among the ranks that there are when it
    begins. With fewer than there were at this call, none has more elements than before, so that
    some are left out. Arrays and lists stay as they are.

    Every rank of the process set calls it, because the ranks compare their arguments (except ranks
    that join an elastic job). It warns if elements would be on several ranks or on none: of a
    shuffle before it without a seed or with unequal ones, of data that are divided already, of
    batches.

    Args:
        data: a `tf.data.Dataset`; an array (of NumPy, pandas, h5py, a sparse matrix of SciPy, or
            a tensor: dense, ragged or sparse), or a tuple, dict or list of arrays of one length; or
            a list of anything else, such as names of files.
        shuffle: whether each epoch has a different order, across all ranks.
        seed: for the orders of all epochs, the same on every rank.
        epoch: the number of the first epoch, which the next ones are counted from, so that a
            program that is resumed does not repeat them. Or a `tf.Variable` that the program sets
            before each epoch, if ranks may not read their datasets equally often.
        uneven: "keep" for parts that may differ by one element; "drop" to leave out the last ones
            of the order, or "pad" to use the first ones again, so that all parts are equal.
        buffer_size: through how many elements a dataset is shuffled; None for all of them.
        compare: whether the ranks compare what they are given; False where not all of them call it.
        process_set: the ranks that the data are divided among.

    Returns:
        The part, of the same kind as the data: a dataset of a dataset, arrays of arrays (a view if
        they are not shuffled), a list of a list.

    Raises:
        TypeError: for data of another kind, and for `hvd.data.Batches`, which are divided already.
        ValueError: on every rank, if the ranks give data of unequal length, or other arguments; if
            arrays have different lengths; if a dataset of unknown length has `shuffle` without
            `buffer_size`; for an unknown `uneven`; for a negative `seed` or `epoch`; on a rank that
            is not in the process set.
        NotInitializedError: before `init`.

    Example:
        >>> samples = tf.data.Dataset.from_tensor_slices(x)
        >>> dataset = hvd.shard(samples, shuffle=True).batch(32)
        >>> files = hvd.shard(sorted(my_files))
    """
    is_dataset = isinstance(data, tf.data.Dataset)
    if isinstance(data, Batches):
        raise TypeError(
            "hvd.data.Batches are divided among the ranks already. Use them as they are; or pass "
            "their samples to hvd.shard."
        )
    first = 0 if isinstance(epoch, tf.Variable) else epoch
    if uneven not in UNEVEN:
        raise ValueError(f"Received: uneven={uneven!r}. Expected: one of {', '.join(UNEVEN)}.")
    if seed < 0 or first < 0:
        raise ValueError(f"Received: seed={seed}, epoch={epoch}. Expected: 0 or above.")
    length = datasets.length_of(data) if is_dataset else arrays.length_of(data)
    checked_id(process_set)  # raises if this rank is not in it
    division = Division(process_set.rank(), process_set.size(), shuffle, seed, uneven)
    if division.size > 1 and tf.executing_eagerly():
        arguments = {"length": length, "uneven": uneven, "shuffle": shuffle}
        if shuffle:
            arguments.update(seed=seed, epoch=first, buffer_size=buffer_size)
        if is_dataset:
            pipeline = pipeline_of(data)
            given = Given(arguments, seeds=tuple(pipeline.seeds))
            if division.rank == 0:
                warn_of_pipeline(pipeline, shuffle)
        else:
            given = Given(arguments, arrays.fingerprint(data))
        if compare:
            check("hvd.shard", given, process_set)
    follows = membership.is_elastic and process_set.process_set_id == 0
    if is_dataset:
        return datasets.divided(data, division, epoch, buffer_size, follows)
    if follows:
        changes.note_arrays(division.size)
    assert length is not None
    return arrays.taken(data, division.positions(length, int(epoch)))
