"""Loops of one's own that reduce some gradients, and forget others."""

import pytest
import tensorflow as tf
from flavours import data, in_both_keras, keras_of, make_model, mean_square
from variants import also
from with_xla import needs_xla

import tfhvd as hvd
from tfhvd.ops import sync_monitor

pytestmark = pytest.mark.ranks(2)


class Loop:
    """Two parts of a model, each with a tape and an optimizer."""

    def __init__(self, keras):
        self.model = make_model(keras)
        variables = self.model.trainable_variables
        self.parts = [variables[:2], variables[2:]]
        self.optimizers = [keras.optimizers.SGD(0.05) for _ in self.parts]
        self.x, self.y = map(tf.constant, data(seed=hvd.rank()))
        self.reduce = lambda part, gradients: gradients

    def tape(self, part):
        tape = tf.GradientTape()
        return hvd.DistributedGradientTape(tape) if part == 0 else tape

    def step(self, order=(0, 1)):
        for part in order:
            with self.tape(part) as tape:
                loss = mean_square(self.y, self.model(self.x, training=True))
            gradients = self.reduce(part, tape.gradient(loss, self.parts[part]))
            self.optimizers[part].apply_gradients(zip(gradients, self.parts[part]))


def compiled(function):
    return tf.function(function, jit_compile=True)


@in_both_keras
@pytest.mark.parametrize(
    "wrap", [tf.function, also(compiled, marks=[needs_xla])], ids=["graph", "compiled"]
)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["wrapped first", "plain first"])
def test_a_forgotten_tape(package, wrap, order):
    loop = Loop(keras_of(package))
    with pytest.raises(Exception, match="2 trainable variables are updated from") as error:
        wrap(lambda: loop.step(order))()
    text = str(error.value)
    assert "A loop with DistributedGradientTape on rank" in text
    assert "tape = hvd.DistributedGradientTape(tape) before the tape.gradient" in text
    for variable, named in zip(loop.model.trainable_variables, [False, False, True, True]):
        name = getattr(variable, "path", variable.name.partition(":")[0])
        assert (name in text) == named


@in_both_keras
def test_a_forgotten_tape_of_an_eager_loop(package):
    loop = Loop(keras_of(package))
    loop.step()
    loop.step()
    with pytest.raises(hvd.NotSynchronizedError, match="2 trainable variables"):
        loop.step()


def test_a_forgotten_tape_after_slices_were_reduced_by_hand():
    """They may be of any variable, but only of one whose update comes next."""
    hvd.allreduce(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2])))
    loop = Loop(keras_of("keras"))
    loop.step()
    loop.step()
    with pytest.raises(hvd.NotSynchronizedError, match="2 trainable variables"):
        loop.step()


def test_the_wrong_one_of_two_tapes():
    """The plain tape is asked, though it was wrapped."""
    loop = Loop(keras_of("keras"))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = mean_square(loop.y, loop.model(loop.x))
        hvd.DistributedGradientTape(tape)
        variables = loop.model.trainable_variables
        loop.optimizers[0].apply_gradients(zip(tape.gradient(loss, variables), variables))

    with pytest.raises(Exception, match="4 trainable variables"):
        step()


class TestSilence:
    """Of loops, each run three times and in a graph."""

    def check(self, loop, times=4):
        for _ in range(times):
            loop.step()
        tf.function(loop.step)()

    @in_both_keras
    def test_all_tapes_are_distributed(self, package):
        loop = Loop(keras_of(package))
        loop.tape = lambda part: hvd.DistributedGradientTape(tf.GradientTape())
        self.check(loop)

    @in_both_keras
    def test_a_tape_and_an_optimizer(self, package):
        loop = Loop(keras_of(package))
        optimizer = loop.optimizers[1]
        loop.optimizers[1] = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2)
        self.check(loop)

    def test_reduced_by_hand(self):
        loop = Loop(keras_of("keras"))
        loop.reduce = lambda part, gradients: (
            gradients if part == 0 else [hvd.allreduce(g) for g in gradients]
        )
        self.check(loop)

    def test_local_sources(self):
        loop = Loop(keras_of("keras"))

        def tape(part):
            wrapped = hvd.DistributedGradientTape(tf.GradientTape())
            for variable in loop.parts[part] if part == 1 else ():
                wrapped.register_local_source(variable)
            return wrapped

        loop.tape = tape
        self.check(loop)

    def test_no_tape_is_distributed(self):
        """As in a loop that one rank runs alone."""
        loop = Loop(keras_of("keras"))
        loop.tape = lambda part: tf.GradientTape()
        self.check(loop)

    def test_training_apart_from_the_loop(self):
        """Before it, after it, and between its steps now and then."""
        loop, other = Loop(keras_of("keras")), Loop(keras_of("keras"))
        loop.tape = lambda part: hvd.DistributedGradientTape(tf.GradientTape())
        other.tape = lambda part: tf.GradientTape()
        for _ in range(3):
            for each in (other, loop):
                for _ in range(3):
                    each.step()

    def test_off(self, monkeypatch):
        monkeypatch.setattr(sync_monitor, "_setting", lambda: "OFF")
        self.check(Loop(keras_of("keras")))


def test_warn(monkeypatch, caplog):
    monkeypatch.setattr(sync_monitor, "_setting", lambda: "WARN")
    tf.function(Loop(keras_of("keras")).step)()
    assert "A loop with DistributedGradientTape" in caplog.text


@pytest.mark.ranks(1)
def test_one_rank_trains_as_it_likes():
    TestSilence().check(Loop(keras_of("keras")))
