"""The ranks of a loop with a distributed tape begin with one state."""

import sys

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
    mean_square,
    values,
)
from variants import also

import tfhvd.keras as hvd
from tfhvd.compat import keras as keras_compat

pytestmark = pytest.mark.ranks(2, 4)

in_every_mode = pytest.mark.parametrize("mode", ["eager", "function", also("compiled")])


@pytest.fixture(autouse=True)
def nobody_has_joined(monkeypatch):
    """Other tests of this job have."""
    monkeypatch.setattr(sys.modules["tfhvd.ops.join"], "_ended", set())


class Loop:
    """A model with Adam, its step, and what it is trained with; other weights on each rank."""

    def __init__(self, package, mode, seed=None, after=lambda loop: None, **of_tape):
        keras = keras_of(package)
        # Broadcasts go by names, which count the models that other tests made, some on one rank.
        keras.backend.clear_session()
        self.model = make_model(keras, hvd.rank() if seed is None else seed)
        self.optimizer = keras.optimizers.Adam(0.01)
        keras_compat.build_optimizer(self.optimizer, self.model.trainable_variables)
        self.x, self.y = map(tf.constant, data(seed=hvd.rank()))

        def step():
            with tf.GradientTape() as tape:
                loss = mean_square(self.y, self.model(self.x, training=True))
            tape = hvd.DistributedGradientTape(tape, **of_tape)
            gradients = tape.gradient(loss, self.model.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
            after(self)

        compiled = mode == "compiled"
        self.step = step if mode == "eager" else tf.function(step, jit_compile=compiled)

    @property
    def state(self):
        kept = keras_compat.optimizer_variables(self.optimizer)
        return [*self.model.trainable_variables, *kept]


@in_both_keras
@in_every_mode
def test_all_ranks_get_the_first_ones_state(package, mode, said):
    loop = Loop(package, mode)
    for _ in range(3):
        loop.step()
    assert_same_on_all_ranks(loop.state)
    assert [text for text in said() if "began with different weights" in text] == said()
    assert len(said()) == (hvd.rank() == 0)
    if mode != "eager":  # as if the program itself had broadcast before its first step
        expected = Loop(package, mode, equal_start=False)
        hvd.broadcast_variables(expected.state, root_rank=0)
        for _ in range(3):
            expected.step()
        assert_close(loop.state, expected.state)


@in_every_mode
def test_of_optimizers_whose_state_one_rank_has_restored(mode, said):
    loop = Loop("keras", mode, seed=0)
    for slot in loop.optimizer.variables[2:]:
        slot.assign(slot + float(hvd.rank() == 0))
    for _ in range(2):
        loop.step()
    assert_same_on_all_ranks(loop.state)
    assert max(np.abs(value).max() for value in values(loop.optimizer.variables[2:])) > 0.5
    assert len(said()) == (hvd.rank() == 0)


@in_every_mode
def test_equal_ranks_broadcast_nothing(mode, said, monkeypatch):
    monkeypatch.setattr("tfhvd.loop_start.broadcast_variables", None)
    loop = Loop("keras", mode, seed=0)
    for _ in range(3):
        loop.step()
    assert not said()


@in_every_mode
def test_a_program_that_broadcasts_after_its_first_step_is_told_nothing(mode, said):
    """As Horovod's examples do."""

    def broadcast(loop):
        if not hasattr(loop, "broadcasts"):
            loop.broadcasts = True
            hvd.broadcast_variables(loop.state, root_rank=hvd.size() - 1)

    loop = Loop("keras", mode, after=broadcast)
    for _ in range(3):
        loop.step()
    assert_same_on_all_ranks(loop.state)
    assert not said()


@in_every_mode
def test_ranks_may_keep_their_own(mode, said):
    loop = Loop("keras", mode, equal_start=False)
    before = values(loop.model.trainable_variables)
    for _ in range(3):
        loop.step()
    for now, then in zip(values(loop.model.trainable_variables), before):
        assert np.abs(now - then).max() < 0.1, "Adam moves a weight by its rate at most"
    assert not said()


@in_every_mode
def test_local_variables_stay_each_ranks_own(mode, said):
    shared, own = tf.Variable([1.0 + hvd.rank()]), tf.Variable([5.0 + hvd.rank()])
    optimizer = keras_of("keras").optimizers.SGD(0.0, momentum=0.5)

    def step():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(shared * own)
        tape.register_local_source(own)
        sources = [own, shared]
        optimizer.apply_gradients(zip(tape.gradient(loss, sources), sources))

    step = step if mode == "eager" else tf.function(step, jit_compile=mode == "compiled")
    for _ in range(3):
        step()
    np.testing.assert_array_equal(shared, [1.0])
    np.testing.assert_array_equal(own, [5.0 + hvd.rank()])
    assert len(said()) == (hvd.rank() == 0)


@in_every_mode
def test_process_sets(mode, said):
    halves = [range(hvd.size() // 2), range(hvd.size() // 2, hvd.size())]
    sets = [hvd.add_process_set(list(half)) for half in halves]
    [own] = [ranks for ranks in sets if ranks.included()]
    loop = Loop("keras", mode, process_set=own)
    for _ in range(3):
        loop.step()
    firsts = {tuple(ranks.ranks): ranks.ranks[0] for ranks in sets}
    of_ranks = hvd.allgather_object([np.array(v) for v in loop.model.trainable_variables])
    for mine, firsts_ in zip(of_ranks[hvd.rank()], of_ranks[firsts[tuple(own.ranks)]]):
        np.testing.assert_array_equal(mine, firsts_)
    assert len(said()) == (own.size() > 1 and own.rank() == 0)
    for ranks in sets:
        hvd.remove_process_set(ranks)


def test_ranks_that_have_joined_are_waited_for_by_nobody(said):
    """The last rank has data in the second epoch only, and one that has joined gives no row."""
    loop = Loop("keras", "eager")
    for epoch in range(2):
        for _ in range(3 if epoch or hvd.rank() < hvd.size() - 1 else 0):
            loop.step()
        hvd.join()
    assert not said()


def test_a_model_whose_second_function_has_the_same_variables_is_compared_once(said):
    loop = Loop("keras", "function")
    loop.step()
    before = len(said())
    loop.model.trainable_variables[0].assign_add(tf.fill([4, 3], float(hvd.rank())))
    tf.function(loop.step.python_function)()
    assert len(said()) == before
