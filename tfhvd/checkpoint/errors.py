"""What is wrong with a checkpoint, or with the folder of checkpoints."""

from __future__ import annotations

from tfhvd.errors import TfhvdError


class CheckpointError(TfhvdError):
    """A checkpoint cannot be written or read; its text says which file, and why."""


class DamagedError(CheckpointError):
    """A checkpoint is not as it was written."""
