"""broadcast_object, allgather_object: any Python objects, as pickles."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfhvd import process, process_sets
from tfhvd.ops.allgather import allgather
from tfhvd.ops.broadcast import broadcast

_FAILED = -1  # in the place of a length: the object could not be pickled


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> Any:
    """Returns the root's object on every rank.

    Args:
        obj: anything that can be pickled; only the root's matters.
        root_rank: the rank whose object is taken.
        session: taken for Horovod's sake; must be None.
        name: the collective's identity; rarely needed.
        process_set: the ranks that take part.

    Returns:
        The object itself on the root, a copy on the others.

    Raises:
        NotInitializedError: before `init`.
        ValueError: for a root that is no rank, and if the root's object cannot be pickled.
        tf.errors.AbortedError: if a rank is lost or has left.

    Example:
        >>> settings = hvd.broadcast_object(read_settings() if hvd.rank() == 0 else None)
    """
    _refuse_session(session)
    is_root = process.rank() == root_rank
    data, error = _pickled(obj) if is_root else (b"", None)
    share = functools.partial(broadcast, root_rank=root_rank, process_set=process_set)
    with tf.init_scope():
        length = _FAILED if error else len(data)
        length = int(share(tf.constant([length], tf.int64), name=_part(name, "length"))[0])
        if length == _FAILED:
            raise ValueError(_cannot_pickle(root_rank)) from error
        data_in = _bytes_tensor(data) if is_root else tf.zeros([length], tf.uint8)
        received = share(data_in, name=_part(name, "data"))
    return obj if is_root else pickle.loads(received.numpy().tobytes())


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function of one argument, the object, that calls `broadcast_object`.

    Args:
        root_rank: the rank whose object is taken.
        session: taken for Horovod's sake; must be None.
        name: the collective's identity; rarely needed.
        process_set: the ranks that take part.

    Example:
        >>> from_root = hvd.broadcast_object_fn(root_rank=0)
        >>> epoch = from_root(epoch)
    """
    _refuse_session(session)
    return functools.partial(
        broadcast_object, root_rank=root_rank, name=name, process_set=process_set
    )


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> list[Any]:
    """Returns every rank's object, in the order of ranks.

    Args:
        obj: anything that can be pickled.
        session: taken for Horovod's sake; must be None.
        name: the collective's identity; rarely needed.
        process_set: the ranks that take part.

    Raises:
        NotInitializedError: before `init`.
        ValueError: if some rank's object cannot be pickled.
        tf.errors.AbortedError: if a rank is lost or has left.

    Example:
        >>> sum(hvd.allgather_object(len(my_files)))
    """
    _refuse_session(session)
    data, error = _pickled(obj)
    gather = functools.partial(allgather, process_set=process_set)
    with tf.init_scope():
        length = _FAILED if error else len(data)
        lengths = gather(tf.constant([length], tf.int64), name=_part(name, "length")).numpy()
        if lengths.min() == _FAILED:
            raise ValueError(_cannot_pickle(int(lengths.argmin()))) from error
        joined = gather(_bytes_tensor(data), name=_part(name, "data")).numpy()
    ends = np.cumsum(lengths)
    return [pickle.loads(joined[e - n : e].tobytes()) for n, e in zip(lengths, ends)]


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}/{part}"


def _bytes_tensor(data: bytes) -> tf.Tensor:
    return tf.constant(np.frombuffer(data, np.uint8))


def _refuse_session(session: Any) -> None:
    if session is not None:
        raise NotImplementedError(
            f"tfhvd works without sessions. Received: session={session!r}. Expected: None."
        )


def _pickled(obj: Any) -> tuple[bytes, Exception | None]:
    """Returns the pickle and None, or nothing and why not: the other ranks must hear of it."""
    try:
        return pickle.dumps(obj, pickle.HIGHEST_PROTOCOL), None
    except Exception as error:
        plain = error
    try:  # Functions and classes of the main script.
        import cloudpickle

        return cloudpickle.dumps(obj), None
    except Exception:
        return b"", plain


def _cannot_pickle(rank: int) -> str:
    return (
        f"The object of rank {rank} cannot be pickled; that rank says why. Expected: an object "
        "that pickle (or cloudpickle, where it is installed) can write."
    )
