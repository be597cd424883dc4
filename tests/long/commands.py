"""Commands that long tests run: without input, and with all that they print in one text."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    timeout: float | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; its errors are in `stdout`, too, where they were printed.

    Raises:
        subprocess.TimeoutExpired: if it takes more than so many seconds.
    """
    return subprocess.run(
        words,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )
