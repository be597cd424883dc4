"""The exceptions of functions that run outside of TensorFlow: `init`, `shutdown`, `rank`, ...

Operations on tensors raise TensorFlow's own: `tf.errors.InvalidArgumentError` where the ranks do
not fit together, `AbortedError` where a rank is lost or has left, `FailedPreconditionError` before
`init`.
"""

from __future__ import annotations


class TfhvdError(RuntimeError):
    """Anything that tfhvd reports; its text says what happened, where, and what to type."""


class NotInitializedError(TfhvdError):
    """tfhvd was asked for something before `init` or after `shutdown`."""


class InvalidSettingError(TfhvdError, ValueError):
    """A setting or an argument has a value that tfhvd cannot use."""


class PeerLostError(TfhvdError):
    """Another rank is lost, or has left the job."""


class UnavailableError(TfhvdError):
    """This machine lacks something: a library, a device, room in /dev/shm."""


class NotSynchronizedError(TfhvdError):
    """Variables differ between ranks, or will: see TFHVD_CHECK_SYNC and TFHVD_ON_DIVERGENCE."""

    # By which TensorFlow knows that it may raise this class where a tf.function is traced.
    __init__ = Exception.__init__


class RankFailedError(TfhvdError):
    """A rank of `tfhvd.run` failed.

    Attributes:
        rank: which failed first; None where that is not known.
        traceback: what Python printed there; "" where the rank ended without.
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
    """Makes the exception of a failed status of the core; called by `tfhvd._native`.

    Args:
        code: the code's name, such as "aborted".
        message: the text.

    Example:
        >>> from_status("aborted", "rank 1 has left")
        PeerLostError('rank 1 has left')
    """
    return _BY_STATUS.get(code, TfhvdError)(message)
