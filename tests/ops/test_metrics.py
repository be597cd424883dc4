"""hvd.metrics: what a rank says of itself."""

import dataclasses

import pytest
import tensorflow as tf

import tfhvd as hvd

on_ranks = pytest.mark.ranks(1, 2)


@on_ranks
def test_counts_what_is_called():
    before = hvd.metrics()
    for _ in range(3):
        hvd.allreduce(tf.ones(10), name="metrics")
    after = hvd.metrics()
    assert after.submitted - before.submitted == 3
    assert after.completed - before.completed == 3
    assert after.failed == before.failed
    assert after.tensors - before.tensors == 3
    assert after.bytes - before.bytes == 3 * 40
    assert after.calls > before.calls
    assert after.rounds > before.rounds
    assert after.rounds >= after.locked_rounds
    assert list(after.waits_by_rank) == list(range(hvd.size()))
    assert after.waits_by_rank[hvd.rank()] == 0.0
    assert sum(after.unlocked.values()) <= after.locked_steps


@on_ranks
def test_a_group_is_one_collective_of_several_tensors():
    before = hvd.metrics()
    hvd.grouped_allreduce([tf.ones(2), tf.ones(3)], name="metrics of a group")
    after = hvd.metrics()
    assert after.submitted - before.submitted == 1
    assert after.tensors - before.tensors == 2
    assert after.bytes - before.bytes == 20
    assert after.fused_tensors - before.fused_tensors == 2


@on_ranks
def test_nobody_can_change_it():
    with pytest.raises(dataclasses.FrozenInstanceError):
        hvd.metrics().tensors = 1
