"""One `fit` at a time among the same ranks, because each rank would run two in another order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from tfhvd.runtime.process_sets import ProcessSet

_lock = threading.Lock()
_threads: dict[int | None, int] = {}  # by process set: the thread that trains with it


@contextlib.contextmanager
def only_fit(process_set: ProcessSet) -> Iterator[None]:
    """Refuses a second `fit` from another thread while the block runs.

    Args:
        process_set: the ranks that train together.

    Raises:
        RuntimeError: if another thread of this process is in such a block.
    """
    key, me = process_set.process_set_id, threading.get_ident()
    with _lock:
        is_outermost = key not in _threads  # a callback may call fit
        other = _threads.setdefault(key, me)
    if other != me:
        raise RuntimeError(
            f"rank {process_set.rank()}: fit was called in a second thread while another fit of "
            "the same ranks was under way. Each rank would run the two in another order. Call one "
            "after the other, or give each model's optimizer its own process_set."
        )
    try:
        yield
    finally:
        if is_outermost:
            with _lock:
                del _threads[key]
