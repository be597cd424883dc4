"""join: a rank that has no data left lets the others go on."""

from __future__ import annotations

from tfhvd import process


def join() -> int:
    """Waits until every rank has joined, and helps those that go on.

    A rank calls it when it has run out of data before others. Until all ranks have, it takes part
    in their collectives: in an allreduce with zeros (op Sum or Average; an average is still over
    the number of all ranks), in an allgather with nothing, in a broadcast of another rank and in a
    barrier. What needs its data (a broadcast from it, Min, Max, Product and Adasum, reducescatter,
    alltoall, changes of process sets) fails on the others meanwhile.

    Returns:
        The rank that joined last: the one that has trained longest, whose state may be broadcast.

    Raises:
        NotInitializedError: before `init`.
        PeerLostError: if a rank is lost or has left.

    Example:
        >>> for batch in my_batches:  # more on some ranks than on others
        ...     train_step(batch)
        >>> last = hvd.join()
        >>> hvd.broadcast_variables(model.variables, root_rank=last)
    """
    process.check_running()
    return process.native().join()
