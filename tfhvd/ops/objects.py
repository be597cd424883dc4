"""broadcast_object, allgather_object: any Python objects, as pickles.

The collectives run eagerly, also while a function is traced; or, in a program in the style of
TensorFlow 1, in a session.
"""

from __future__ import annotations

import dataclasses
import functools
import pickle
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf

from tfhvd.job import process
from tfhvd.ops._checks import check_root
from tfhvd.ops.allgather import allgather
from tfhvd.ops.broadcast import broadcast
from tfhvd.ops.names import Identity
from tfhvd.runtime import process_sets
from tfhvd.runtime.membership import membership

if TYPE_CHECKING:
    from tfhvd.compat.types import Session

_T = TypeVar("_T")

# How the error of a broadcast ends that cannot be completed: cc/flow/request.h, and here.
ROOT_IS_LOST = "its root has failed, and no other rank has the data"

_LENGTH = struct.Struct("<q")  # before each pickle that is gathered
_FAILED = -1  # in the place of a length: the object could not be pickled
_MADE = "tfhvd/collectives_of_objects"  # a collection of a session's graph


def broadcast_object(
    obj: _T,
    root_rank: int = 0,
    session: Session | None = None,
    name: str | None = None,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> _T:
    """Returns the root's object on every rank.

    Args:
        obj: anything that can be pickled; only the root's matters.
        root_rank: the rank whose object is taken.
        session: where operations do not run eagerly: the session that runs the collectives, in
            whose graph they are made at the first call; None for the default session.
        name: the collective's identity; rarely needed.
        process_set: the ranks that take part.

    Returns:
        The object itself on the root, a copy on the others.

    Raises:
        NotInitializedError: before `init`.
        ValueError: for a root that is no rank, and if the root's object cannot be pickled.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> settings = hvd.broadcast_object(read_settings() if hvd.rank() == 0 else None)
    """
    # A rank in its warm-up run is alone.
    is_root = process.rank() == check_root(root_rank, process_set) or membership.rehearses
    if membership.is_elastic:
        return _brought(obj, is_root, session, name, process_set)
    share = _Transport("broadcast", _session_of(session), name, process_set, root_rank)
    data, error = _pickled(obj) if is_root else (b"", None)
    length = int(share("length", _array([_FAILED if error else len(data)]))[0])
    if length == _FAILED:
        raise ValueError(_cannot_pickle(root_rank)) from error
    received = share("data", _bytes(data) if is_root else np.zeros([length], np.uint8))
    return obj if is_root else pickle.loads(received.tobytes())


def _brought(
    obj: _T,
    is_root: bool,
    session: Session | None,
    name: str | None,
    process_set: process_sets.ProcessSet,
) -> _T:
    """The root's object, even if ranks get new numbers after `is_root` was read.

    Every rank says whether it has brought one; the first one counts on all.
    """
    mine = (obj,) if is_root else None
    every = [each for each in allgather_object(mine, session, name, process_set) if each]
    if not every:
        raise tf.errors.AbortedError(
            None,
            None,
            f"The object {name or ''!r} cannot be broadcast: {ROOT_IS_LOST}",
        )
    return obj if is_root and len(every) == 1 else every[0][0]


def broadcast_object_fn(
    root_rank: int = 0,
    session: Session | None = None,
    name: str | None = None,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> Callable[[_T], _T]:
    """Returns a function of one argument, the object, that calls `broadcast_object`.

    Args:
        root_rank: the rank whose object is taken.
        session: where operations do not run eagerly: the session that runs the collectives, in
            whose graph they are made at the first call; None for the default session.
        name: the collective's identity; rarely needed.
        process_set: the ranks that take part.

    Returns:
        The function; it raises as `broadcast_object` does.

    Raises:
        TypeError: for a session that is none.

    Example:
        >>> from_root = hvd.broadcast_object_fn(root_rank=0)
        >>> epoch = from_root(epoch)
    """
    if session is not None:  # its graph may be finalized by the time that the function is called
        kind, root = ("allgather", None) if membership.is_elastic else ("broadcast", root_rank)
        _Transport(kind, _session_of(session), name, process_set, root).prepare()
    return functools.partial(
        broadcast_object, root_rank=root_rank, session=session, name=name, process_set=process_set
    )


def allgather_object(
    obj: _T,
    session: Session | None = None,
    name: str | None = None,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> list[_T]:
    """Returns every rank's object, in the order of ranks.

    Args:
        obj: anything that can be pickled.
        session: where operations do not run eagerly: the session that runs the collectives, in
            whose graph they are made at the first call; None for the default session.
        name: the collective's identity; rarely needed.
        process_set: the ranks that take part.

    Returns:
        A list of as many objects as there are ranks, equal on every rank.

    Raises:
        NotInitializedError: before `init`.
        ValueError: if some rank's object cannot be pickled.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> sum(hvd.allgather_object(len(my_files)))
    """
    gather = _Transport("allgather", _session_of(session), name, process_set)
    data, error = _pickled(obj)
    # One collective: if a rank of an elastic job fails, its object is missing as a whole.
    joined = gather("data", _bytes(_LENGTH.pack(_FAILED if error else len(data)) + data)).tobytes()
    objects: list[bytes] = []
    at = 0
    while at < len(joined):
        [length] = _LENGTH.unpack_from(joined, at)
        if length == _FAILED:
            raise ValueError(_cannot_pickle(len(objects))) from error
        at += _LENGTH.size + length
        objects.append(joined[at - length : at])
    return [pickle.loads(each) for each in objects]


@dataclasses.dataclass(frozen=True)
class _Transport:
    """The collectives of one call: of the pickles and, before a broadcast, of their length."""

    kind: str  # "broadcast" or "allgather"
    session: Session | None  # None: eager
    name: str | None
    process_set: process_sets.ProcessSet
    root_rank: int | None = None

    def __call__(self, part: str, value: np.ndarray) -> np.ndarray:
        if self.session is None:
            name = None if self.name is None else Identity(f"{self.name}/{part}")
            # A GPU's copy of it would be sent from there, and come back as one.
            with tf.init_scope(), tf.device("CPU:0"):
                return self._collective(tf.constant(value), name).numpy()
        fed, fetched = self._operation(part)
        return self.session.run(fetched, {fed: value})

    def prepare(self) -> None:
        """Makes the operations for the session."""
        if self.kind == "broadcast":
            self._operation("length")
        self._operation("data")

    def _operation(self, part: str) -> tuple[tf.Tensor, tf.Tensor]:
        """The collective in the session's graph, made once: what to feed, and what to fetch."""
        assert self.session is not None
        graph = self.session.graph
        if not graph.get_collection_ref(_MADE):
            graph.get_collection_ref(_MADE).append({})
        [made] = graph.get_collection_ref(_MADE)
        # Not after other tensors of the graph, which may differ between ranks.
        name = self.name or f"{self.kind}_object.{self.root_rank}"
        key = (name, self.kind, self.root_rank, self.process_set.process_set_id, part)
        if key not in made:
            dtype = tf.int64 if part == "length" else tf.uint8
            with graph.as_default(), graph.control_dependencies(None):
                fed = tf.compat.v1.placeholder(dtype, [None])
                made[key] = fed, self._collective(fed, Identity(f"{name}/{part}"))
        return made[key]

    def _collective(self, tensor: tf.Tensor, name: str | None) -> tf.Tensor:
        if self.kind == "allgather":
            return allgather(tensor, name=name, process_set=self.process_set)
        assert self.root_rank is not None
        return broadcast(tensor, self.root_rank, name=name, process_set=self.process_set)


def _session_of(session: Session | None) -> Session | None:
    """Returns the session to use, or None if operations run eagerly.

    Raises:
        TypeError: for what is no session.
        ValueError: where operations run in sessions only, and there is none.
    """
    if session is None and not tf.compat.v1.executing_eagerly_outside_functions():
        session = tf.compat.v1.get_default_session()
        if session is None:
            raise ValueError(
                "Without eager execution, objects are sent in a session, and there is no default "
                "session; pass session=..., or call within `with session.as_default():`."
            )
    if session is not None and not (hasattr(session, "run") and hasattr(session, "graph")):
        raise TypeError(f"Received: session={session!r}. Expected: a session, or None.")
    return session


def _array(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.int64)


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


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
        f"The object of rank {rank} cannot be pickled; that rank says why. Pass an object that "
        "pickle (or cloudpickle, if it is installed) can write."
    )
