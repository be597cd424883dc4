"""Runs the command `tfhvd` in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from children import environment


def tfhvd(
    *words: object, within: Sequence[str] = (), timeout: float = 90, **env: str
) -> subprocess.CompletedProcess[str]:
    """`within`: words of a command that runs the one behind it, as on another host."""
    return subprocess.run(
        [*within, sys.executable, "-m", "tfhvd", *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(**env),
    )
