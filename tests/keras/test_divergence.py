"""`fit` finds weights that differ between ranks, says which and why, and heals them if asked."""

import logging
import threading

import mpi
import numpy as np
import pytest
import tensorflow as tf
from flavours import MODES, data, in_both_keras, in_every_way, keras_of, make_model, set_seed
from variants import also

import tfhvd
import tfhvd.keras as hvd
from tfhvd import replicas
from tfhvd.compat import keras as keras_compat
from tfhvd.compat.variables import key_of, tf_variable, variable_name
from tfhvd.replicas import Comparison

pytestmark = pytest.mark.ranks(2, 4)


@pytest.fixture
def lines(caplog):
    """What tfhvd has warned of, as one text."""
    caplog.set_level(logging.WARNING, "tfhvd")

    def said():
        ours = [r.getMessage() for r in caplog.records if r.name == "tfhvd"]
        return "\n".join(text for text in ours if "differ" in text)

    return said


def compiled(package, mode="graph", seed=0, **arguments):
    keras = keras_of(package)
    model = make_model(keras, seed)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), **arguments)
    model.compile(optimizer, "mse", **MODES[mode])
    return model


def flip(variable, index=5, bit=12):
    """Flips one bit of one float32."""
    inner = tf_variable(variable)
    bits = np.ascontiguousarray(inner.numpy()).view(np.uint32)
    bits.reshape(-1)[index] ^= 1 << bit
    inner.assign(bits.view(np.float32))


def flipper(package, at, on, index=5):
    """A callback that flips a bit on one rank, after the step of that number of the first epoch."""

    class Flip(keras_of(package).callbacks.Callback):
        done = False

        def on_train_batch_end(self, batch, logs=None):
            if batch + 1 == at and hvd.rank() == on and not self.done:
                self.done = True
                flip(self.model.trainable_variables[0], index)

    return Flip()


def fit(model, samples=24, callbacks=(), **arguments):
    x, y = data(seed=hvd.rank(), samples=samples)
    model.fit(x, y, batch_size=4, verbose=0, shuffle=False, callbacks=[*callbacks], **arguments)


def all_equal(model):
    own = np.concatenate([np.ravel(tf_variable(v).numpy()) for v in model.trainable_variables])
    everyone = hvd.allgather(own[None].view(np.uint32).astype(np.int64)).numpy()
    return bool((everyone == everyone[0]).all())


def check(every, action="warn"):
    return hvd.callbacks.DivergenceCallback(every, action)


@in_every_way
def test_a_flipped_bit_is_found_and_named(package, mode, lines):
    model = compiled(package, mode)
    fit(model, callbacks=[check(3), flipper(package, 2, hvd.size() - 1)])
    if hvd.rank() > 0:
        assert not lines()
        return
    name = getattr(model.trainable_variables[0], "path", None) or "kernel"
    assert "Weights differ between ranks after step 3 of fit: " in lines()
    assert name in lines() and "bias" not in lines()
    assert (
        f"on rank {hvd.size() - 1} against rank 0, in 1 of 12 elements (1 bits): looks like"
        in lines()
    )
    assert lines().count("Weights differ") == 1, "each variable is reported once"


@in_both_keras
def test_raise_ends_fit_on_every_rank(package):
    model = compiled(package)
    with pytest.raises(tfhvd.NotSynchronizedError, match=r"after step 3 of fit: .*kernel"):
        fit(model, callbacks=[check(3, "raise"), flipper(package, 1, 1)])


@in_both_keras
@pytest.mark.parametrize("every", [2, 3, 6])
def test_heal_gives_all_ranks_the_weights_of_most(package, every, lines):
    """After an epoch's last step, too."""
    model = compiled(package)
    victim = 1 if hvd.size() == 2 else 0
    fit(model, callbacks=[check(every, "heal"), flipper(package, every, victim)], epochs=3)
    assert all_equal(model)
    assert ("take over" in lines()) == (hvd.rank() == 0)


@in_every_way
def test_equal_weights_are_not_complained_of(package, mode, lines):
    fit(compiled(package, mode), callbacks=[check(1, "raise")], epochs=3)
    assert not lines()


@in_both_keras
def test_an_unequal_start_is_named(package, lines):
    apart = hvd.callbacks.BroadcastGlobalVariablesCallback(None)
    fit(compiled(package, seed=hvd.rank()), callbacks=[apart, check(3)])
    if hvd.rank() == 0:
        assert "before the first step of fit" in lines()
        assert "unequal start; pass BroadcastGlobalVariablesCallback(0)" in lines()


def test_by_default_it_is_every_100th_step(lines):
    """Without a callback, and a setting."""
    fit(compiled("keras"), samples=4 * 120, callbacks=[flipper("keras", 5, 1)])
    assert ("Weights differ between ranks after step 100 of fit: " in lines()) == (hvd.rank() == 0)


@in_both_keras
def test_a_broadcast_makes_the_start_equal(package, lines):
    model = compiled(package, seed=hvd.rank())
    fit(model, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), check(1)])
    assert not lines()


@in_both_keras
def test_local_variables_may_differ(package, lines):
    model = compiled(package)
    model.optimizer.register_local_var(model.trainable_variables[0])
    flip(model.trainable_variables[0], bit=hvd.rank())
    fit(model, callbacks=[check(1, "raise")], epochs=2)
    assert not lines()


@in_both_keras
def test_a_layer_that_is_never_built_hides_nothing(package, lines):
    keras = keras_of(package)

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.used = keras.layers.Dense(1)
            self.unused = keras.layers.Dense(1)

        def call(self, x):
            return self.used(x)

    set_seed(keras, 0)
    model = Model()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", **MODES["graph"])
    fit(model, callbacks=[check(1, "raise")])
    flips = flipper(package, 2, 1, index=2)
    with pytest.raises(tfhvd.NotSynchronizedError, match=r"after step 3 of fit: .*kernel"):
        fit(model, callbacks=[check(3, "raise"), flips])


def test_scales_of_float8_may_differ(lines):
    """They are of what each rank has seen, and take their gradient for their new value."""
    keras = keras_of("keras")
    model = make_model(keras)
    model.quantize("float8")
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", **MODES["graph"])
    fit(model, callbacks=[check(1, "heal")], epochs=2)
    assert not lines()
    overwritten = [v for v in model.trainable_variables if v.overwrite_with_gradient]
    own = np.concatenate([np.ravel(v) for v in overwritten])
    assert not np.array_equal(*hvd.allgather_object(own)[:2]), "nor are they healed"


@in_both_keras
@pytest.mark.parametrize("action", ["warn", "raise", "heal"])
def test_ranks_may_have_unequal_data(package, action, lines):
    model = compiled(package)
    fit(model, samples=8 + 12 * hvd.rank(), callbacks=[check(1, action)], epochs=3)
    assert not lines()
    assert all_equal(model)


@in_both_keras
def test_heals_with_unequal_data(package, lines):
    model = compiled(package)
    flips = flipper(package, 2, hvd.size() - 1)
    fit(model, 8 + 12 * hvd.rank(), [check(2, "heal"), flips], epochs=4)
    assert all_equal(model)


def test_a_loop_calls_the_check_itself(lines):
    """With a variable that has no gradient of all ranks, and bfloat16."""
    good = tf.Variable(tf.ones([40], tf.bfloat16))
    bad = tf.Variable(tf.ones([40]) * (1 + 1e-6 * hvd.rank()), name="bad")
    assert tfhvd.check_divergence([good], step=7) == []
    assert tfhvd.check_divergence([good, bad], step=8) == ["bad"]
    with pytest.raises(tfhvd.NotSynchronizedError, match="after step 9: bad"):
        tfhvd.check_divergence([good, bad], step=9, on_divergence="raise")
    if hvd.rank() == 0:
        assert "after step 8: bad on rank" in lines() and "nondeterministic" in lines()
    tfhvd.check_divergence([good, bad], on_divergence="heal")
    assert tfhvd.check_divergence([good, bad]) == []


def test_one_wrong_element_of_many_looks_corrupted(lines):
    variable = tf.Variable(tf.ones([100]), name="weights")
    if hvd.rank() == 1:
        flip(variable, bit=30)
    assert tfhvd.check_divergence([variable]) == ["weights"]
    if hvd.rank() == 0:
        assert "weights on rank 1 against rank 0, in 1 of 100 elements (1 bits)" in lines()
        assert "corrupted" in lines()


def update_eagerly(variable, change):
    variable.assign_sub(change)


def update_in_a_graph(variable, change):
    tf.function(lambda: variable.assign_sub(change))()


def update_compiled(variable, change):
    tf.function(lambda: variable.assign_sub(change), jit_compile=True)()


def update_a_row(variable, change):
    variable[1].assign(change[1])


def update_by_slices(variable, change):
    variable.scatter_sub(tf.IndexedSlices(change[:1], [1]))


def update_by_keras(variable, change):
    keras_of("keras").optimizers.Adam(0.1).apply([change], [variable])


@pytest.mark.parametrize(
    "update",
    [
        *(update_eagerly, update_in_a_graph, update_compiled),
        *(update_a_row, update_by_slices, update_by_keras),
    ],
)
def test_what_is_compared_is_what_was_there_when_it_began(update, monkeypatch):
    """The next step may update the variables before anybody has looked at their values."""
    updated = threading.Event()
    fingerprint = replicas._fingerprint

    def later(value):
        assert updated.wait(60)
        return fingerprint(value)

    monkeypatch.setattr(replicas, "_fingerprint", later)
    variable = tf.Variable(tf.ones([4, 3]), name="weights")
    for _ in range(2):  # TensorFlow stores a variable in another way from the first slices on
        comparison = Comparison([variable], "", hvd.global_process_set)
        update(variable, tf.ones([4, 3]) * (1.0 + hvd.rank()))
        updated.set()
        assert comparison.finish("raise") == []
        assert tfhvd.check_divergence([variable]) == ["weights"]
        variable.assign(tf.ones([4, 3]))
        updated.clear()


def test_different_numbers_of_variables_are_said(lines):
    variables = [tf.Variable(1.0) for _ in range(2 if hvd.rank() == 0 else 3)]
    assert tfhvd.check_divergence(variables) == []
    if hvd.rank() == 0:
        assert "different numbers of variables (2 on rank 0, 3 on rank 1" in lines()
    with pytest.raises(tfhvd.NotSynchronizedError, match="different numbers"):
        tfhvd.check_divergence(variables, on_divergence="raise")


def test_a_gradient_that_was_not_reduced_is_named(lines):
    """As far as the step is known; `fit` itself refuses this by default."""
    variable = tf.Variable(tf.ones([4]) * hvd.rank(), name="weights")
    comparison = Comparison([variable], "after step 3 of fit", hvd.global_process_set)
    assert comparison.finish("warn", unreduced=[key_of(variable)]) == ["weights"]
    if hvd.rank() == 0:
        assert "its gradient was not reduced" in lines()


def test_a_word_that_is_no_action_is_refused():
    with pytest.raises(ValueError, match="one of warn, raise, heal"):
        tfhvd.check_divergence([], on_divergence="stop")
    with pytest.raises(ValueError, match="one of warn, raise, heal"):
        check(10, "stop")


PARTLY = """
import numpy as np
import keras
import tensorflow as tf
import tfhvd.keras as hvd

hvd.init()
keras.utils.set_random_seed(1)


class Model(keras.Sequential):
    def train_step(self, data):
        x, y = data
        kernel, bias = self.trainable_variables
        with tf.GradientTape(persistent=True) as plain:
            loss = self.compute_loss(x, y, self(x, training=True))
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            again = self.compute_loss(x, y, self(x, training=True))
        gradients = [tape.gradient(again, kernel.value), plain.gradient(loss, bias.value)]
        self.optimizer.apply(gradients, [kernel, bias])
        return {"loss": loss}


model = Model([keras.layers.Input((3,)), keras.layers.Dense(2, name="dense")])
model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
x = np.full([12, 3], hvd.rank() + 1, np.float32)
begin = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
model.fit(x, x[:, :2], batch_size=2, verbose=0, callbacks=[begin])
"""


def test_a_variable_whose_gradient_is_not_reduced_is_told_as_that(tmp_path):
    """Where TFHVD_CHECK_SYNC has not made it an error in the first step, as it does by default."""
    file = tmp_path / "train.py"
    file.write_text(PARTLY)
    env = {"TFHVD_CHECK_SYNC": "warn", "TFHVD_DIVERGENCE_STEPS": "2"}
    job = mpi.run_ranks(2, [str(file)], env=env)
    assert job.code == 0, job
    said = [line for line in job.ranks[0].err.splitlines() if "Weights differ between" in line]
    assert len(said) == 1, job
    assert "after step 2 of fit: " in said[0]
    assert "dense/bias on rank 1 against rank 0" in said[0]
    assert "its gradient was not reduced" in said[0]
    assert "kernel" not in said[0]


def with_adam(package, layers=(), **arguments):
    keras = keras_of(package)
    set_seed(keras, 0)
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), **arguments)
    model.compile(optimizer, "mse", jit_compile=False)
    return model


def changer(package, of_model, rank):
    """A callback that changes a variable on one rank after the second step."""

    class Change(keras_of(package).callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1 and hvd.rank() == rank:
                variable = of_model(self.model)
                variable.assign(variable + tf.cast(1, variable.dtype))

    return Change()


def first_slot(model):
    kept = keras_compat.optimizer_variables(model.optimizer)
    return next(v for v in kept if len(v.shape) == 2)


def statistics(model):
    return model.layers[0].moving_mean


@in_both_keras
@pytest.mark.parametrize(
    ("of_model", "action"),
    [(first_slot, "heal"), (statistics, "warn"), also(statistics, "heal")],
)
def test_state_beside_weights_is_looked_at_in_turns(package, of_model, action, lines):
    """A slot makes weights differ that are healed in vain; joined statistics never do."""
    norm = keras_of(package).layers.BatchNormalization(synchronized=True)
    model = with_adam(package, [norm])
    changed = changer(package, of_model, hvd.size() - 1)
    fit(model, samples=4 * 40, callbacks=[check(1, action), changed])
    name = variable_name(of_model(model))
    assert (name in lines()) == (hvd.rank() == 0)
    if action == "heal":
        values = hvd.allgather_object(np.array(of_model(model)))
        assert all(np.array_equal(values[0], value) for value in values)
    elif hvd.rank() == 0:
        assert "Other state differs between ranks after step " in lines()


def dropout(keras):
    return [keras.layers.Dropout(0.5, seed=hvd.rank()), keras.layers.BatchNormalization()]


def local_norm(keras):
    return [keras.layers.BatchNormalization(synchronized=False), keras.layers.Dense(3)]


@in_both_keras
@pytest.mark.parametrize("layers", [dropout, local_norm])
@pytest.mark.parametrize("samples", [4 * 20, also(None)])
def test_what_each_rank_keeps_of_its_own_is_not_complained_of(package, layers, samples, lines):
    """Its seeds, its statistics, its local layers and their slots, and its number of steps."""
    layers = layers(keras_of(package))
    model = with_adam(package, layers)
    model.optimizer.register_local_var(layers[-1].trainable_variables[0])
    own = samples or 4 * (12 + 4 * hvd.rank())
    fit(model, samples=own, callbacks=[check(1, "raise")], epochs=2)
    assert not lines()


@pytest.mark.thorough
@pytest.mark.variant
@in_both_keras
@pytest.mark.parametrize("passes", [1, also(2)])
def test_state_of_scales_and_of_accumulation_is_equal(package, passes, lines):
    keras = keras_of(package)
    set_seed(keras, 0)
    with_scale = keras.mixed_precision.LossScaleOptimizer
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.Adam(0.01), backward_passes_per_step=passes
    )
    optimizer = with_scale(optimizer)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", jit_compile=False)
    fit(model, samples=4 * 20, callbacks=[check(1, "raise")], epochs=2)
    assert not lines()
