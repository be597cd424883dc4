"""What is given to any distributed optimizer or tape arrives, and is refused, in the same way."""

import dataclasses
import inspect
import re

import pytest
import tensorflow as tf
from flavours import keras_of

import tfhvd
import tfhvd.keras
from tfhvd.compat import keras as keras_compat
from tfhvd.gradients.options import ReductionOptions

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
    "quarantine": True,
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
        ({"quarantine": True, "op": tfhvd.Adasum}, "Expected: Average or Sum"),
        ({"groups": -1}, "groups=-1"),
        ({"backward_passes_per_step": 0}, "1 or more"),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused(kind, arguments, text):
    if "tape" in kind and "backward_passes_per_step" in arguments:
        pytest.skip("a tape has no passes")
    with pytest.raises(ValueError, match=text):
        wrapped(kind, **arguments)


def sent(kind, distributed, variables):
    """The reductions in one step: how many tensors each has, and what it multiplies them by."""
    gradients = [tf.ones_like(variable) for variable in variables]
    if "keras" in kind or "legacy" in kind:
        keras_compat.build_optimizer(distributed, variables)

    @tf.function
    def step():
        if "tape" in kind:
            with distributed:
                loss = tf.add_n([tf.reduce_sum(variable) for variable in variables])
            distributed.gradient(loss, variables)
        elif "compat" in kind:
            distributed.compute_gradients(
                lambda: tf.add_n([tf.reduce_sum(variable) for variable in variables]), variables
            )
        else:
            distributed.apply_gradients(zip(gradients, variables))

    operations = step.get_concrete_function().graph.get_operations()
    reductions = [o for o in operations if re.match("Tfhvd(Grouped)?Allreduce", o.type)]
    factors = {
        tuple(float(o.get_attr(f"{place}scale_factor")) for place in ("pre", "post"))
        for o in reductions
    }
    return [len(o.inputs) for o in reductions], factors


@with_every_wrapper
@pytest.mark.parametrize(
    ("arguments", "sizes", "factors"),
    [
        # One more each: the ranks' votes, whether their gradients are finite.
        ({}, [5 + 1], (1.0, 1.0)),
        ({"groups": 2}, [2, 3, 1], (1.0, 1.0)),
        ({"num_groups": 3}, [1, 2, 2, 1], (1.0, 1.0)),
        ({"num_groups": 9}, [1, 1, 1, 1, 1, 1], (1.0, 1.0)),
        ({"groups": [[0, 3], [1, 2]]}, [2, 2, 1, 1], (1.0, 1.0)),
        ({"gradient_predivide_factor": 4.0}, [5 + 1], (0.25, 4.0)),
    ],
    ids=str,
)
def test_what_is_given_decides_what_is_sent(kind, arguments, sizes, factors):
    """The results are the same without, so that they say nothing of it."""
    variables = [tf.Variable(tf.zeros([2, i + 1])) for i in range(5)]
    groups = arguments.get("groups")
    if isinstance(groups, list):
        arguments = {"groups": [[variables[i] for i in group] for group in groups]}
    distributed, given = wrapped(kind, **arguments)
    if given.keys() != arguments.keys():
        pytest.skip("this one has no such argument")
    found, by = sent(kind, distributed, variables)
    assert (found, by) == (sizes, {factors})
