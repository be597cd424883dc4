"""The flight record names the user's line that a collective comes from."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from with_xla import needs_xla

import tfhvd as hvd
from tfhvd.hang import flight_record
from tfhvd.runtime.native import load_native

FILE = str(Path(__file__))
on_ranks = pytest.mark.ranks(1, 2)


def origins():
    """By name, of all collectives that this rank remembers."""
    record = flight_record.read(load_native().flight_record())
    return {collective.name: collective.origin for collective in record.collectives}


def line_above():
    return sys._getframe(1).f_lineno - 1


@on_ranks
def test_eager_calls():
    hvd.allreduce(tf.ones(3), name="origin.eager")
    assert origins()["origin.eager"] == f"{FILE}:{line_above()} in test_eager_calls"


@on_ranks
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_xla)])
def test_graphs(compiled):
    name = f"origin.graph.{compiled}"

    @tf.function(jit_compile=compiled)
    def step(x):
        if tf.executing_eagerly():  # so that AutoGraph rewrites it
            return x
        return hvd.allreduce(x, name=name)

    where = line_above()
    step(tf.ones(3))
    assert origins()[name] == f"{FILE}:{where - 1} in step"


@pytest.mark.ranks(2)
def test_gradients_come_from_where_they_are_asked_for():
    x = tf.Variable(2.0, name="origin_weight")
    with tf.GradientTape() as tape:
        loss = x * x
    tape = hvd.DistributedGradientTape(tape)
    tape.gradient(loss, [x])
    where = line_above()
    [found] = [origin for name, origin in origins().items() if "origin_weight" in name]
    here = "test_gradients_come_from_where_they_are_asked_for"
    assert found == f"{FILE}:{where} in {here}, for origin_weight"


@pytest.mark.ranks(2)  # one alone reduces nothing
def test_fit_is_named_by_the_call_of_fit():
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="origin_dense")])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    model.fit(tf.ones((4, 2)), tf.ones((4, 1)), batch_size=2, verbose=0)
    where = line_above()
    layer = [origin for origin in origins().values() if "origin_dense" in origin]
    here = f"{FILE}:{where} in test_fit_is_named_by_the_call_of_fit, for "
    assert layer and all(origin.startswith(here) for origin in layer)
    assert all(re.search(r"origin_dense/(kernel|bias)( and 1 more)?$", o) for o in layer), layer
