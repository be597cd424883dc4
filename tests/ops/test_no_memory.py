"""A rank lacks memory for a result: that collective fails on all ranks, and the job continues."""

import contextlib

import pytest
import tensorflow as tf
import troubleshooting
import user_messages
from memory_limit import no_more_than

import tfhvd as hvd

pytestmark = pytest.mark.ranks(2, 4)

ROWS = 16 << 20  # of four bytes each: 64 MiB
COLLECTIVES = {
    "allgather": hvd.allgather,
    "alltoall": hvd.alltoall,
    "reducescatter": hvd.reducescatter,
    "allreduce": hvd.allreduce,
    "broadcast": lambda x, name: hvd.broadcast(x, 0, name=name),
}


def works():
    """Whether collectives of all kinds work on all ranks."""
    for name, collective in COLLECTIVES.items():
        assert collective(tf.ones([4 * hvd.size()]), name=f"{name}.after").shape[0] > 0
    return float(hvd.allreduce(1.0, op=hvd.Sum, name="after")) == hvd.size()


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_a_lack_of_memory_on_one_rank_fails_the_collective_on_all(kind):
    poor = hvd.size() - 1
    x = tf.ones([ROWS])
    for turn in range(2):
        limit = no_more_than(8 << 20) if hvd.rank() == poor else contextlib.nullcontext()
        text = (
            rf"{kind} '.*big' has failed on every rank: rank {poor} cannot get the \d{{8,}} bytes"
        )
        with limit, pytest.raises(tf.errors.UnavailableError, match=text) as raised:
            COLLECTIVES[kind](x, name="big")
        if kind == "allgather":
            user_messages.check("no memory for a result", raised.value.message)
        troubleshooting.check("`cannot get the ... bytes of memory`", str(raised.value))
        assert works(), turn
    # Not as large: what is kept of a large result would be memory for the next test.
    assert COLLECTIVES[kind](tf.ones([4]), name="big").shape[0] > 0


def test_more_rows_than_can_be_counted_are_refused():
    rows = tf.zeros([2**62, 0])
    for name, collective in (("allgather", hvd.allgather), ("alltoall", hvd.alltoall)):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"{name} '.*many' would move more"
        ):
            collective(rows, name="many")
        assert works()
