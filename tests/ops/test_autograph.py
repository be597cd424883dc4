"""AutoGraph translates the user's functions, and not tfhvd's, which it would take seconds for."""

from __future__ import annotations

import inspect

import pytest
import tensorflow as tf

import tfhvd as hvd
from tfhvd.ops import _kernels

pytestmark = pytest.mark.ranks(1, 2)


def test_only_the_users_function_is_translated(monkeypatch):
    called = set()
    reduce = _kernels.reduce

    def noting(*arguments, **more):
        called.update(frame.function for frame in inspect.stack())
        return reduce(*arguments, **more)

    monkeypatch.setattr(_kernels, "reduce", noting)

    @tf.function
    def step(x):
        if tf.reduce_sum(x) > 0:  # which Python alone cannot do while it is traced
            return hvd.allreduce(x, op=hvd.Sum)
        return -x

    assert step(tf.constant([1.0, 2.0])).numpy().tolist() == [hvd.size() * 1.0, hvd.size() * 2.0]
    assert step(tf.constant([-1.0])).numpy().tolist() == [1.0]
    assert "allreduce" in called
    assert "tf__allreduce" not in called


def test_a_users_function_that_a_tape_was_given_to_is_translated():
    weight = tf.Variable(2.0)

    @tf.function
    def step(x):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = weight * x
            if loss > 4.0:
                loss = 3.0 * loss
        return tape.gradient(loss, weight)

    assert float(step(tf.constant(1.0))) == 1.0
    assert float(step(tf.constant(3.0))) == 9.0
