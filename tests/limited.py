"""Control groups of version 1 with little memory, which root may make."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

MEMORY = Path("/sys/fs/cgroup/memory")


def possible() -> bool:
    """Whether this process may make them."""
    return os.access(MEMORY, os.W_OK)


@contextlib.contextmanager
def memory(limit: int) -> Iterator[list[str]]:
    """Makes a group with so many bytes; gives the words that start a command in it."""
    group = MEMORY / f"tfhvd-test-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        yield ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "limited"]
    finally:
        deadline = time.monotonic() + 30
        while group.exists():
            with contextlib.suppress(OSError):  # the last process is still ending
                group.rmdir()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{group} still has processes")
            time.sleep(0.01)
