"""What Horovod's elastic API raises."""

from __future__ import annotations

from tfhvd.errors import TfhvdError


class HorovodInternalError(TfhvdError):
    """A collective has failed because of another rank, and cannot be finished without it."""


class HostsUpdatedInterrupt(Exception):  # noqa: N818 (Horovod's name)
    """Ranks were lost since the last commit, or have come; `run` calls the function anew.

    Attributes:
        skip_sync: whether all ranks have the same state, so that it need not be sent.
    """

    def __init__(self, skip_sync: bool = True) -> None:
        super().__init__("ranks were lost since the last commit, or have come")
        self.skip_sync = skip_sync
