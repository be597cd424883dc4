"""hvd.broadcast_object, broadcast_object_fn and allgather_object."""

import threading

import numpy as np
import pytest
import tensorflow as tf

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


@pytest.mark.ranks(1, 2, 4)
def test_the_roots_object_on_every_rank():
    for root in range(hvd.size()):
        mine = {"rank": hvd.rank(), "data": list(range(100 * hvd.rank())), 3: None}
        theirs = {"rank": root, "data": list(range(100 * root)), 3: None}
        assert hvd.broadcast_object(mine, root) == theirs
        assert hvd.broadcast_object(mine, root_rank=root, name="named") == theirs
        assert hvd.broadcast_object_fn(root)(mine) == theirs


@pytest.mark.ranks(1, 2, 4)
def test_every_ranks_object():
    mine = np.arange(hvd.rank() * 1000)
    gathered = hvd.allgather_object(mine)
    assert [len(array) for array in gathered] == [rank * 1000 for rank in range(hvd.size())]
    names = hvd.allgather_object(f"rank {hvd.rank()}", name="names")
    assert names == [f"rank {rank}" for rank in range(hvd.size())]


def test_nothing_and_much():
    assert hvd.broadcast_object(None) is None
    assert hvd.broadcast_object(b"") == b""
    assert hvd.broadcast_object(bytes(1 << 20)) == bytes(1 << 20)


def test_while_a_function_is_traced():
    @tf.function
    def f(x):
        return x + hvd.broadcast_object(hvd.rank() + 1)

    assert f(tf.constant(1)) == 2


def test_what_cannot_be_pickled_is_an_error_on_every_rank():
    lock = threading.Lock()
    with pytest.raises(ValueError, match="The object of rank 0 cannot be pickled"):
        hvd.broadcast_object(lock)
    last = hvd.size() - 1
    with pytest.raises(ValueError, match=f"The object of rank {last} cannot be pickled"):
        hvd.allgather_object(lock if hvd.rank() == last else 1)
    assert hvd.allgather_object(1) == [1] * hvd.size()


def test_what_is_no_session():
    with pytest.raises(TypeError, match=r"Received: session='session'. Expected: a session"):
        hvd.broadcast_object(1, session="session")
