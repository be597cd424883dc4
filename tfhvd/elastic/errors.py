"""The errors of Horovod's elastic API."""

from __future__ import annotations

from tfhvd.errors import TfhvdError


class HorovodInternalError(TfhvdError):
    """A collective has failed because of another rank and cannot finish without this rank."""


class HostsUpdatedInterrupt(Exception):  # noqa: N818 (Horovod's name)
    """Ranks have failed or joined since the last commit; `run` calls the function again.

    Attributes:
        skip_sync: whether all ranks have the same state already, so that `run` need not send it.
    """

    def __init__(self, skip_sync: bool = True) -> None:
        super().__init__("ranks have failed or joined since the last commit")
        self.skip_sync = skip_sync
