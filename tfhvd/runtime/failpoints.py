"""Failpoints in the Python parts of the protocol of elastic jobs."""

from __future__ import annotations

from tfhvd.runtime.native import load_native


def come_to(name: str) -> None:
    """Ends this process if a test has requested it for this failpoint: see cc/base/failpoints.h."""
    load_native().pass_failpoint(name)
