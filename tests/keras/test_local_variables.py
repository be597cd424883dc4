"""Variables and layers whose gradients stay each rank's own."""

import numpy as np
import pytest
import tensorflow as tf
from flavours import (
    assert_close,
    assert_same_on_all_ranks,
    data,
    in_both_keras,
    keras_of,
    make_model,
    own_gradients,
    summed,
    values,
)
from variants import also
from with_xla import needs_xla

import tfhvd
import tfhvd.keras as hvd
from tfhvd.compat.training import slots_of
from tfhvd.compat.variables import key_of

pytestmark = pytest.mark.ranks(2, 4)


def shape_of(variable):
    return tuple(variable.shape)


def gradients_of(model, local, scale):
    """What a step of a partly local model should apply: (local, shared) by layer."""
    x, y = data(seed=hvd.rank())
    own = own_gradients(model, x, y)
    shared = [g / hvd.size() for g in summed(own)]
    part = 1 / hvd.size() if scale else 1.0
    return [
        o * part if any(v is w for w in local) else s
        for o, s, v in zip(own, shared, model.trainable_variables)
    ]


@pytest.mark.parametrize("scale", [True, False])
def test_tape(scale):
    model = make_model(keras_of("keras"))
    x, y = data(seed=hvd.rank())
    layer, variable = model.layers[0], model.trainable_variables[3]
    local = [*layer.trainable_weights, variable]

    def gradients():
        tape = tfhvd.PartialDistributedGradientTape(
            tf.GradientTape(), local_layers=layer, scale_local_gradients=scale
        )
        tape.register_local_source(variable)
        with tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        found = tape.gradient(loss, model.trainable_variables)
        told = tape.get_local_and_global_gradients(found, model.trainable_variables)
        again = tape.get_local_and_global_gradients(found)
        assert all(a is b for a, b in zip(tf.nest.flatten(again), tf.nest.flatten(told)))
        with pytest.raises(ValueError, match="there are 1 gradients and 4 sources"):
            tape.get_local_and_global_gradients(found[:1])
        return found, again

    expected = gradients_of(model, local, scale)
    for step in (gradients, tf.function(gradients)):
        found, (own, shared) = step()
        assert_close(found, expected)
        assert_close(own, [expected[0], expected[1], expected[3]])
        assert_close(shared, [expected[2]])
    with pytest.raises(TypeError, match="local_layers takes Keras layers"):
        tfhvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[variable])


@pytest.mark.parametrize(
    "compiled", [None, False, pytest.param(True, marks=needs_xla)], ids=["eager", "graph", "xla"]
)
def test_generic_names(compiled):
    """Ranks with other variables between the shared ones, and other names, meet by the order."""
    own = [tf.Variable(1.0) for _ in range(hvd.rank())]
    shared = [tf.Variable(2.0, name=f"mine{hvd.rank()}"), tf.Variable(3.0, name="last")]
    order = [*own[:1], shared[0], *own[1:], shared[1]]

    def gradients():
        tape = tfhvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum)
        for variable in own:
            tape.register_local_source(variable)
        with tape:
            loss = (hvd.rank() + 1.0) * (shared[0] + 2.0 * shared[1]) + sum(own)
        found = tape.gradient(loss, order, use_generic_names=True)
        return tape.get_local_and_global_gradients(found)[1]

    total = sum(range(1, hvd.size() + 1))
    step = gradients if compiled is None else tf.function(gradients, jit_compile=compiled)
    np.testing.assert_allclose(step(), [total, 2.0 * total])


@in_both_keras
@pytest.mark.parametrize("kind", ["partial", "registered", "legacy", "scaled"])
def test_keras_optimizer(package, kind):
    keras = keras_of(package)
    if kind == "legacy" and package == "keras":
        pytest.skip("Keras 3 has no legacy optimizers")
    model = make_model(keras)
    place = keras.optimizers.legacy if kind == "legacy" else keras.optimizers
    plain, layer = place.SGD(0.25), model.layers[0]
    if kind == "registered":
        optimizer = hvd.DistributedOptimizer(plain, groups=1)
        for variable in layer.trainable_weights:
            optimizer.register_local_var(variable)
    else:
        if kind == "scaled":
            plain = keras.mixed_precision.LossScaleOptimizer(plain, initial_scale=1.0)
        optimizer = hvd.PartialDistributedOptimizer(plain, local_layers=[layer])
    expected = gradients_of(model, layer.trainable_weights, scale=True)
    before = [np.array(v) for v in model.trainable_variables]
    x, y = data(seed=hvd.rank())
    optimizer.apply_gradients(zip(own_gradients(model, x, y), model.trainable_variables))
    assert_close(
        model.trainable_variables, [b - 0.25 * np.array(g) for b, g in zip(before, expected)]
    )


def test_layers_that_are_built_later():
    keras = keras_of("keras")
    keras.utils.set_random_seed(0)
    local = keras.layers.Dense(2)
    model = keras.Sequential([local, keras.layers.Dense(1)])
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.25), local_layers=local)
    model.compile(optimizer, "mse")
    x, y = data(seed=hvd.rank())
    model.fit(x, y, batch_size=len(x), verbose=0)
    kernels = [hvd.allgather_object(np.array(layer.kernel)) for layer in model.layers]
    assert not np.array_equal(kernels[0][0], kernels[0][1])
    np.testing.assert_array_equal(kernels[1][0], kernels[1][1])


def named_layers(keras):
    """A model of which the name of the local layer is a part of the shared one's."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(3, name="head"), keras.layers.Dense(1, name="shared_head")]
    return chain(keras, layers), *layers


def chain(keras, layers):
    """A model of the functional API, which has no name of its own in those of its variables."""
    inputs = outputs = keras.layers.Input((4,))
    for layer in layers:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


SLOTS = {
    "SGD": (1, {"momentum": 0.9}),
    "Adam": (3, {"amsgrad": True}),
    "Ftrl": (2, {}),
    "RMSprop": (3, {"momentum": 0.9, "centered": True}),
}


@in_both_keras
@pytest.mark.parametrize("name", ["SGD", "Adam", also("Ftrl"), also("RMSprop")])
@pytest.mark.parametrize("legacy", [False, also(True)])
def test_slots_are_those_of_the_variables_and_not_of_like_names(package, name, legacy):
    keras = keras_of(package)
    if legacy and package == "keras":
        pytest.skip("Keras 3 has no legacy optimizers")
    model, head, shared = named_layers(keras)
    number, options = SLOTS[name]
    place = keras.optimizers.legacy if legacy else keras.optimizers
    model.compile(hvd.DistributedOptimizer(getattr(place, name)(0.1, **options)), "mse")
    model.fit(*data(0), verbose=0)
    slots = {}
    for layer in (head, shared):
        found = slots_of(model.optimizer, layer.trainable_weights, model.trainable_variables)
        assert sorted(map(shape_of, found)) == sorted(map(shape_of, layer.weights * number))
        slots[layer] = {key_of(slot) for slot in found}
    assert not slots[head] & slots[shared]


def test_slots_in_an_optimizer_of_ones_own_go_by_whole_names():
    keras = keras_of("keras")

    class Own(keras.optimizers.SGD):
        def build(self, variables):
            super().build(variables)
            self.sums = {v.path: self.add_variable_from_reference(v, name="sum") for v in variables}

    model, head, shared = named_layers(keras)
    optimizer = Own(0.1)
    optimizer.build(model.trainable_variables)
    for layer in (head, shared):
        found = slots_of(optimizer, layer.trainable_weights, model.trainable_variables)
        expected = [optimizer.sums[v.path] for v in layer.trainable_weights]
        assert list(map(key_of, found)) == list(map(key_of, expected))


@in_both_keras
def test_unequal_steps_leave_all_that_is_local(package):
    """Statistics and frozen weights of local layers too; a shared layer's slots are taken over."""
    keras = keras_of(package)
    keras.utils.set_random_seed(0)
    head, shared = (
        keras.layers.Dense(n, name=name) for n, name in [(3, "head"), (1, "shared_head")]
    )
    norm, frozen = keras.layers.BatchNormalization(), keras.layers.Dense(4, trainable=False)
    model = chain(keras, [frozen, norm, head, shared])
    for variable in frozen.weights:
        variable.assign(tf.ones(variable.shape) * (hvd.rank() + 1.0))
    plain = keras.optimizers.SGD(0.01, momentum=0.9)
    local = [frozen, norm, head]
    optimizer = hvd.PartialDistributedOptimizer(plain, local_layers=local)
    model.compile(optimizer, "mse", jit_compile=False)
    before = values(frozen.weights)
    model.fit(*data(hvd.rank(), 8 + 8 * hvd.rank()), batch_size=4, verbose=0)
    assert_close(frozen.weights, before, rtol=0)
    slots = slots_of(optimizer, shared.trainable_weights, model.trainable_variables)
    assert len(slots) == 2
    assert_same_on_all_ranks([*shared.weights, *slots])
    own = slots_of(optimizer, head.trainable_weights, model.trainable_variables)
    for variable in [norm.moving_mean, norm.moving_variance, head.kernel, own[0]]:
        first, second = hvd.allgather_object(np.array(variable))[:2]
        assert not np.array_equal(first, second), variable.name


def test_optimizer_of_compat_v1():
    own, shared = tf.Variable(1.0), tf.Variable(1.0)
    optimizer = tfhvd.DistributedOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(1.0), scale_local_gradients=False
    )
    optimizer.register_local_var(own)
    optimizer.minimize(lambda: (own + shared) * (hvd.rank() + 1.0), var_list=[own, shared])
    assert float(own) == -hvd.rank()
    assert float(shared) == 1.0 - np.mean([rank + 1.0 for rank in range(hvd.size())])


@in_both_keras
@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    ("counts", "mode"),
    [([12, 4], False), ([6, 0], False), also([12, 4], True, marks=[needs_xla])],
    ids=str,
)
def test_a_local_gradient_counts_as_its_rank_does(package, counts, mode):
    """It is the joined loss's gradient, of which a rank has as much as it has samples."""
    if package == "tf_keras" and 0 in counts:
        pytest.skip("no data are an error in tf_keras")
    keras = keras_of(package)
    model = make_model(keras)
    layer = model.layers[-1]
    x, y = data(seed=hvd.rank(), samples=max(counts[hvd.rank()], 1))
    part = counts[hvd.rank()] / sum(counts)
    own = dict(zip(map(key_of, model.trainable_variables), own_gradients(model, x, y)))
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.25), local_layers=layer)
    model.compile(optimizer, "mse", jit_compile=mode)
    expected = [np.array(v) - 0.25 * part * own[key_of(v)] for v in layer.trainable_weights]
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(len(x))
    model.fit(batches.take(1 if counts[hvd.rank()] else 0), verbose=0)
    assert_close(layer.trainable_weights, expected)
