"""How an elastic job lets in ranks that wait: at a point of the program that all have come to."""

from __future__ import annotations

from tfhvd.ops.barrier import barrier
from tfhvd.runtime.failpoints import come_to
from tfhvd.runtime.library import load_native
from tfhvd.runtime.membership import membership


def waiting_ranks() -> int:
    """Returns how many ranks wait, as far as this one has heard; the ranks are to agree on that."""
    return load_native().ranks_waiting() if membership.is_elastic else 0


def let_in() -> bool:
    """Lets in the ranks that wait. Every rank calls it, at the same point of the program.

    Those that were let in have come to where they begin to train.

    Returns:
        Whether the job goes on with who has come, the same on every rank; False where its members
        cannot change any more.
    """
    come_to("admission_begins")
    # What is under way when ranks come would wait for them, who know nothing of it.
    while not load_native().wait_until_idle(0.5):
        pass
    # Before all have come here: once they have, a member's engine may go on with who comes before
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
        # The first rank asks; where it is lost, the next one does.
        if asked != generation and native.topology().rank == 0:
            assert membership.launcher is not None
            membership.launcher.let_in(before)
            come_to("let_in_asked")
            asked = generation
        if native.wait_for_generation(generation, 0.5) is None:
            return False
