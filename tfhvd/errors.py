"""The exceptions of functions that run outside of TensorFlow: `init`, `shutdown`, `rank`, ...

Operations on tensors raise TensorFlow's errors: `tf.errors.InvalidArgumentError` if the calls of
ranks do not match, `AbortedError` if a rank has failed or left, `FailedPreconditionError` before
`init`.
"""

from __future__ import annotations


class TfhvdError(RuntimeError):
    """The base of all errors here; the text says what happened, where, and what to type."""


class NotInitializedError(TfhvdError):
    """A function was called before `init` or after `shutdown`."""


class InvalidSettingError(TfhvdError, ValueError):
    """A setting or an argument has a value that tfhvd cannot use."""


class PeerLostError(TfhvdError):
    """Another rank has failed, or has left the job."""


class UnavailableError(TfhvdError):
    """This machine lacks a library, a device, or room in /dev/shm."""


class NotSynchronizedError(TfhvdError):
    """Variables differ between ranks, or will: see TFHVD_CHECK_SYNC and TFHVD_ON_DIVERGENCE."""

    # TensorFlow raises this class while it traces a tf.function only if it has this constructor.
    __init__ = Exception.__init__


class RankFailedError(TfhvdError):
    """A rank of `tfhvd.run` failed.

    Attributes:
        rank: the rank that failed first; None if it is unknown.
        traceback: Python's traceback of that rank; "" if the rank ended without one.
    """

    def __init__(self, message: str, rank: int | None = None, traceback: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.traceback = traceback


class InternalError(TfhvdError):
    """A bug of tfhvd, or a failure of a library that it calls."""


_BY_STATUS: dict[str, type[TfhvdError]] = {
    "failed precondition": NotInitializedError,
    "invalid argument": InvalidSettingError,
    "aborted": PeerLostError,
    "data loss": PeerLostError,
    "unavailable": UnavailableError,
    "internal": InternalError,
}


def from_status(code: str, message: str) -> TfhvdError:
    """Returns the exception for a failed status of the core; `tfhvd._native` calls it.

    Args:
        code: the code's name, such as "aborted".
        message: the text.

    Example:
        >>> from_status("aborted", "rank 1 has left")
        PeerLostError('rank 1 has left')
    """
    return _BY_STATUS.get(code, TfhvdError)(message)
