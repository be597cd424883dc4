"""hvd.broadcast_object in an elastic job, whose ranks may be numbered anew at any time."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tfhvd as hvd
from tfhvd.ops import objects


# What one reads of its rank may be out of date by the time that it sends.
def test_the_root_is_who_brings_an_object(monkeypatch):
    def broadcast(mine, *others, is_root):
        monkeypatch.setattr(objects, "allgather_object", lambda own, *rest: [*others, own])
        return objects._brought(mine, is_root, None, "state", hvd.global_process_set)

    mine = [1]
    assert broadcast(mine, None, None, is_root=True) is mine
    assert broadcast(mine, None, ([2],), is_root=False) == [2]
    assert broadcast(mine, ([2],), is_root=True) == [2]
    assert broadcast(mine, (None,), is_root=False) is None
    with pytest.raises(tf.errors.AbortedError, match=r"'state' .* its root has failed, and"):
        broadcast(mine, None, is_root=False)
