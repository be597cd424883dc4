"""How an elastic job admits pending ranks: at a point of the program that all have reached."""

from __future__ import annotations

from tfhvd.ops.barrier import barrier
from tfhvd.runtime.failpoints import come_to
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native


def waiting_ranks() -> int:
    """Returns how many ranks wait, as far as this one has heard; the ranks are to agree on that."""
    return load_native().ranks_waiting() if membership.is_elastic else 0


def let_in() -> bool:
    """Admits the pending ranks. Every rank calls it, at the same point of the program.

    Admitted ranks are at the beginning of their training.

    Returns:
        Whether the job continues with joining ranks, the same on every rank; False if its members
        cannot change any more.
    """
    come_to("admission_begins")
    # A collective in progress when ranks join would wait for them, and they do not know it.
    while not load_native().wait_until_idle(0.5):
        pass
    # Before all ranks are here: afterwards a member's engine may continue with joining ranks before
    # its thread gets a processor again, and this would be the number that it waits to change.
    before = load_native().admitted()
    barrier()
    come_to("admission_agreed")
    done = _let_in(before)
    membership.refresh()
    come_to("let_in_done")
    return done


def _let_in(before: int) -> bool:
    """The same, of ranks that have all come to one point.

    Args:
        before: the generation for which they let others in the last time.
    """
    native = load_native()
    asked = -1
    while True:
        generation = native.generation()
        if native.admitted() != before:
            return True
        # The first rank asks; if it fails, the next one does.
        if asked != generation and native.topology().rank == 0:
            assert membership.launcher is not None
            membership.launcher.let_in(before)
            come_to("let_in_asked")
            asked = generation
        if native.wait_for_generation(generation, 0.5) is None:
            return False
