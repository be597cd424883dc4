"""Who shows Keras' progress bars."""

import numpy as np
import pytest
from flavours import data, in_both_keras, keras_of, make_model

import tfhvd
import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(2)


def shown(capsys):
    return "step" in capsys.readouterr().out


def compiled(keras, **arguments):
    model = make_model(keras)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), **arguments)
    model.compile(optimizer, keras.losses.MeanSquaredError())
    return model


@in_both_keras
def test_rank_0_where_a_program_does_not_say(package, capsys):
    model, (x, y) = compiled(keras_of(package)), data(seed=hvd.rank())
    first = hvd.rank() == 0
    for given in ({}, {"verbose": "auto"}):
        model.fit(x, y, validation_data=(x, y), **given)
        assert shown(capsys) == first
        model.evaluate(x, y, **given)
        assert shown(capsys) == first
        assert np.shape(model.predict(x, **given)) == (8, 1)
        assert shown(capsys) == first


@in_both_keras
def test_as_a_program_says(package, capsys):
    model, (x, y) = compiled(keras_of(package)), data(seed=hvd.rank())
    for verbose in (0, 1, 2):
        model.fit(x, y, None, 1, verbose)
        model.evaluate(x, y, verbose=verbose)
        assert shown(capsys) == (verbose > 0)


def test_of_a_model_that_one_rank_trains_alone(capsys):
    """Its rank is none of several: a plain optimizer may be meant."""
    keras = keras_of("keras")
    model = make_model(keras)
    model.compile("sgd", "mse")
    model.evaluate(*data(seed=0))
    assert shown(capsys) == (hvd.rank() == 0)


def test_on_all_ranks(capsys):
    model, (x, y) = compiled(keras_of("keras")), data(seed=hvd.rank())
    with pytest.raises(ValueError, match="Expected: 'first' or 'all'"):
        hvd.progress_bars("none")
    hvd.progress_bars("all")
    model.fit(x, y)
    hvd.progress_bars("first")
    assert shown(capsys)


def test_of_a_process_set_its_first_rank(capsys):
    last = tfhvd.add_process_set([1])
    if last.included():
        compiled(keras_of("keras"), process_set=last).fit(*data(seed=0))
        assert shown(capsys)
    hvd.barrier()
    tfhvd.remove_process_set(last)
