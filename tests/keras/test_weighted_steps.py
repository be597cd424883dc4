"""By what number ranks count in averages: what their losses are divided by."""

import numpy as np
import pytest
import tensorflow as tf
from flavours import data, in_both_keras, keras_of, make_model
from variants import also
from with_xla import needs_xla

import tfhvd
import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(2)


def averaged(weight, op=hvd.Average, compiled=None):
    """The gradient of rank + 1, which is reduced by a tape."""
    variable = tf.Variable([1.0, 1.0])

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * (hvd.rank() + 1.0))
        with hvd.batch_weight(weight() if callable(weight) else weight):
            return tfhvd.DistributedGradientTape(tape, op=op).gradient(loss, variable)

    return (step if compiled is None else tf.function(step, jit_compile=compiled))().numpy()


@pytest.mark.parametrize(
    "compiled",
    [None, also(False), pytest.param(True, marks=needs_xla)],
    ids=["eager", "graph", "xla"],
)
@pytest.mark.parametrize("kind", ["number", "integers", "floats"])
def test_averages_go_by_the_number_that_is_given(kind, compiled):
    own = [1, 3][hvd.rank()]
    given = {
        "number": own,
        "integers": lambda: tf.reduce_sum(tf.constant([own, 0], tf.int64)),
        "floats": lambda: tf.reduce_sum(tf.constant([0.5 * own, 0.0])),
    }
    np.testing.assert_allclose(averaged(given[kind], compiled=compiled), [1.75, 1.75])


@pytest.mark.parametrize("given", [1, 0.5])
def test_a_rank_that_counts_nothing_has_no_part(given):
    np.testing.assert_array_equal(averaged(given * hvd.rank()), [2.0, 2.0])


def test_sums_have_no_weights():
    np.testing.assert_array_equal(averaged(7.5 * hvd.rank() + 1, op=hvd.Sum), [3.0, 3.0])


def test_what_is_no_weight_is_refused():
    for wrong in (-1, float("nan"), [1.0, 2.0]):
        with pytest.raises(ValueError, match=r"Received: .*\. Expected: one number, 0 or above"):
            averaged(wrong)


def test_several_passes_take_whole_numbers_only():
    optimizer = hvd.DistributedOptimizer(
        keras_of("keras").optimizers.SGD(1.0), backward_passes_per_step=2
    )
    variable = tf.Variable([1.0])
    with hvd.batch_weight(0.5), pytest.raises(ValueError, match="batch_weight of an integer"):
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])


def one_number(y, prediction):
    return tf.reduce_mean(tf.square(y - prediction))


@in_both_keras
@pytest.mark.parametrize("samples", [also([4, 4]), [4, 2]], ids=str)
def test_a_loss_that_reduces_by_itself_is_named_where_batches_differ(package, samples, caplog):
    keras = keras_of(package)
    model = make_model(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), one_number)
    x, y = data(seed=hvd.rank(), samples=samples[hvd.rank()])
    model.fit(x, y, epochs=2, verbose=0)
    told = caplog.text.count("gives one number for a batch")
    assert told == (hvd.rank() == 0 and samples[0] != samples[1]), caplog.text
    if told:
        assert "4, 2 samples on ranks [0, 1]" in caplog.text and "hvd.batch_weight" in caplog.text
