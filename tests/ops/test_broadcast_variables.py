"""hvd.broadcast_variables and hvd.broadcast_."""

import functools
import importlib

import numpy as np
import pytest
import tensorflow as tf
import user_messages
from modes import in_both_modes, run

import tfhvd as hvd
from tfhvd.ops import _kernels

module = importlib.import_module("tfhvd.ops.broadcast_variables")
pytestmark = pytest.mark.ranks(1, 2)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_every_variable_gets_the_roots_value(mode):
    for root in range(hvd.size()):
        here = hvd.rank() + 1
        variables = [
            tf.Variable([1.0 * here, 2.0], name="weight"),
            tf.Variable([here, 2], dtype=tf.int64, name="weight"),
            tf.Variable(here % 2 == 0, name="flag"),
            tf.Variable([[here, 7]], dtype=tf.uint32, name="seed"),
            tf.Variable(complex(here, 1), dtype=tf.complex64, name="phase"),
        ]
        run(mode, functools.partial(hvd.broadcast_variables, variables, root))
        there = root + 1
        np.testing.assert_array_equal(variables[0], [there, 2.0])
        np.testing.assert_array_equal(variables[1], [there, 2])
        assert variables[2].numpy() == (there % 2 == 0)
        np.testing.assert_array_equal(variables[3], [[there, 7]])
        assert variables[4].numpy() == complex(there, 1)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_values_are_returned(mode):
    variable = tf.Variable([hvd.rank() + 5.0])
    [value] = run(mode, lambda: hvd.broadcast_([variable], 0, name="mine"))
    assert value == 5.0
    assert variable == 5.0


def test_keras_models():
    import keras

    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(4), keras.layers.Dense(2)])
    for weight in model.weights:
        weight.assign(weight * 0 + hvd.rank() + 1)
    hvd.broadcast_variables(model.weights, hvd.size() - 1)
    for weight in model.weights:
        np.testing.assert_array_equal(weight, np.full(weight.shape, hvd.size()))


@pytest.mark.ranks(2)
def test_a_rank_may_have_made_more_layers():
    import keras

    for _ in range(hvd.rank()):  # Keras numbers layers: the names of the next ones differ
        keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    hvd.broadcast_variables(model.weights, 0)
    weights = np.concatenate([np.ravel(weight) for weight in model.weights])
    np.testing.assert_array_equal(*hvd.allgather(weights[None]).numpy())


def test_none_is_nothing_to_do():
    hvd.broadcast_variables([], 0)


@pytest.mark.ranks(2)
def test_different_numbers_of_variables_are_an_error_on_every_rank():
    variables = [tf.Variable(1.0) for _ in range(hvd.rank() + 1)]
    with pytest.raises(ValueError) as raised:
        hvd.broadcast_variables(variables, 0)
    user_messages.check("models with more layers", str(raised.value))
    hvd.broadcast_variables(variables[:1], 0)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("position", [0, 1])
def test_different_shapes_name_the_variable(position):
    variables = [tf.Variable(tf.zeros([2]), name="bias") for _ in range(3)]
    variables[position] = tf.Variable(tf.zeros([hvd.rank() + 1]), name="kernel")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"different models: .* 'kernel' here"):
        hvd.broadcast_variables(variables, 0)


def test_eager_calls_wait_for_the_other_ranks_once(monkeypatch):
    calls = []
    broadcast = _kernels.broadcast_all

    def counted(tensors, *arguments):
        calls.append(len(tensors))
        return broadcast(tensors, *arguments)

    monkeypatch.setattr(_kernels, "broadcast_all", counted)
    here = hvd.rank() + 1
    variables = [tf.Variable(tf.fill([100], here * k)) for k in range(20)]
    hvd.broadcast_variables(variables, 0)
    assert calls == [20]
    monkeypatch.setattr(module, "_MOST_TOGETHER", 1000)  # two of 400 bytes, and one
    hvd.broadcast_variables(variables, hvd.size() - 1)
    assert calls == [20, *[2] * 10]
    for k, variable in enumerate(variables):
        np.testing.assert_array_equal(variable, np.full(100, k))


def test_text_is_refused():
    with pytest.raises(TypeError, match=r"Received: string. Expected: a numeric type"):
        hvd.broadcast_variables([tf.Variable("text")], 0)
