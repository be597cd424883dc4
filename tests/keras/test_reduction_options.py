"""What is given to any distributed optimizer or tape arrives, and is refused, in the same way."""

import dataclasses
import inspect

import pytest
import tensorflow as tf
from flavours import keras_of

import tfhvd
import tfhvd.keras
from tfhvd.reduction_options import ReductionOptions

pytestmark = pytest.mark.ranks(2, 4)

# No default among them; `op` stands in GIVEN alone, for it and others exclude each other.
GIVEN = {
    "name": "mine",
    "device_dense": "/CPU:0",
    "device_sparse": "/device:CPU:0",
    "compression": tfhvd.Compression.bf16,
    "sparse_as_dense": True,
    "op": tfhvd.Sum,
    "backward_passes_per_step": 3,
    "average_aggregated_gradients": True,
    "groups": 5,
    "scale_local_gradients": False,
}


def sgd(package):
    return keras_of(package).optimizers.SGD()


WRAPPERS = {
    "tape": (tfhvd.DistributedGradientTape, tf.GradientTape),
    "partial tape": (tfhvd.PartialDistributedGradientTape, tf.GradientTape),
    "partial, keras": (tfhvd.PartialDistributedOptimizer, lambda: sgd("keras")),
    "tfhvd, keras": (tfhvd.DistributedOptimizer, lambda: sgd("keras")),
    "tfhvd.keras, keras": (tfhvd.keras.DistributedOptimizer, lambda: sgd("keras")),
    "tfhvd.keras, tf_keras": (tfhvd.keras.DistributedOptimizer, lambda: sgd("tf_keras")),
    "tfhvd.keras, legacy": (
        tfhvd.keras.DistributedOptimizer,
        lambda: keras_of("tf_keras").optimizers.legacy.SGD(),
    ),
    "tfhvd, compat.v1": (
        tfhvd.DistributedOptimizer,
        lambda: tf.compat.v1.train.GradientDescentOptimizer(1.0),
    ),
}
with_every_wrapper = pytest.mark.parametrize("kind", list(WRAPPERS))


def wrapped(kind, **given):
    """Gives a wrapper those of the arguments that it has."""
    wrapper, plain = WRAPPERS[kind]
    known = inspect.signature(wrapper).parameters
    given = {name: value for name, value in given.items() if name in known}
    return wrapper(plain(), **given), given


@with_every_wrapper
def test_every_argument_arrives(kind):
    layer = keras_of("keras").layers.Dense(1)
    distributed, given = wrapped(kind, process_set=tfhvd.global_process_set, **GIVEN)
    options = distributed._tfhvd.reduce.options
    assert {name: getattr(options, name) for name in given} == given
    partial, _ = wrapped(kind, gradient_predivide_factor=2.0, num_groups=7, local_layers=layer)
    options = partial._tfhvd.reduce.options
    assert options.gradient_predivide_factor == 2.0
    assert options.groups == (None if "partial, keras" in kind else 7)
    assert options.local_layers is (layer if "partial" in kind else None)


def test_no_argument_is_left_out():
    every = {field.name for field in dataclasses.fields(ReductionOptions)}
    assert every == {*GIVEN, "gradient_predivide_factor", "process_set", "local_layers"}


@with_every_wrapper
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"op": 17}, "Expected: hvd.Average"),
        ({"gradient_predivide_factor": 0.0}, "above 0"),
        ({"gradient_predivide_factor": 2.0, "op": tfhvd.Sum}, "Expected: op=Average"),
        ({"groups": -1}, "groups=-1"),
        ({"backward_passes_per_step": 0}, "1 or more"),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused(kind, arguments, text):
    if "tape" in kind and "backward_passes_per_step" in arguments:
        return  # a tape has no passes
    with pytest.raises(ValueError, match=text):
        wrapped(kind, **arguments)
