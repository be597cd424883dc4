"""The errors of checkpoints, and of their folder."""

from __future__ import annotations

from tfhvd.errors import TfhvdError


class CheckpointError(TfhvdError):
    """A checkpoint cannot be written or read; its text says which file, and why."""


class DamagedError(CheckpointError):
    """The files of a checkpoint have changed since they were written."""
