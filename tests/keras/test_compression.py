"""Compressions with a state: nothing is lost, only late; and the state is saved."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from flavours import assert_same_on_all_ranks, data, keras_of, make_model, own_gradients, values
from variants import also

import tfhvd
import tfhvd.keras as hvd
from tfhvd.gradients.options import ReductionOptions
from tfhvd.gradients.reducer import GradientReducer

pytestmark = pytest.mark.ranks(2, 4)

SHAPE = (6, 5)


def gradients(step):
    """All ranks' gradients of a step."""
    return [
        np.random.default_rng([step, rank]).normal(size=SHAPE).astype("float32")
        for rank in range(hvd.size())
    ]


def make(kind):
    return {
        "topk": lambda: hvd.Compression.topk(ratio=0.2, least=10),
        "powersgd": lambda: hvd.Compression.powersgd(rank=2),
    }[kind]()


both = pytest.mark.parametrize("kind", ["topk", "powersgd"])


def test_top_k_by_hand():
    variable = tf.Variable(tf.zeros(SHAPE))
    reduce = GradientReducer(ReductionOptions(name="by_hand", op=hvd.Sum, compression=make("topk")))
    errors = np.zeros((hvd.size(), 30), "float32")
    for step in range(4):
        all_own, expected = gradients(step), np.zeros(30, "float32")
        for rank, own in enumerate(all_own):
            whole = own.ravel() + errors[rank]
            kept = np.argsort(-np.abs(whole))[:6]  # a fifth of 30
            expected[kept] += whole[kept]
            whole[kept] = 0
            errors[rank] = whole
        [reduced] = reduce([tf.constant(all_own[hvd.rank()])], [variable])
        np.testing.assert_allclose(reduced.numpy().ravel(), expected, rtol=1e-6)


@both
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
@pytest.mark.parametrize("mode", ["eager", "function"])
def test_what_is_left_out_comes_later(kind, op, mode):
    """The sum of what was applied and of what is remembered is the sum of the gradients."""
    variable = tf.Variable(tf.zeros(SHAPE))
    compression = make(kind)
    reduce = GradientReducer(ReductionOptions(name=kind, op=op, compression=compression))
    step = lambda g: reduce([g], [variable])  # noqa: E731
    step = tf.function(step) if mode == "function" else step
    applied, given = np.zeros(SHAPE), np.zeros(SHAPE)
    for number in range(5):
        own = gradients(number)
        [reduced] = step(tf.constant(own[hvd.rank()]))
        assert_same_on_all_ranks([reduced])
        applied += reduced.numpy()
        given += np.mean(own, 0) if op == hvd.Average else np.sum(own, 0)
        assert not np.allclose(applied, given, atol=0.1)  # something is left out
        remembered = hvd.allreduce(compression.state()[0], op=op)
        np.testing.assert_allclose(applied + remembered, given, atol=1e-4)


@both
@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("number", ["whole", "floating"])
def test_what_is_left_out_counts_as_it_did(kind, mode, number):
    """Where ranks count differently in each step, and one of them not at all in some."""
    variable = tf.Variable(tf.zeros(SHAPE))
    compression = make(kind)
    reduce = GradientReducer(ReductionOptions(name=kind, compression=compression))

    def step(gradient, weight):
        with hvd.batch_weight(weight):
            return reduce([gradient], [variable])

    step = tf.function(step) if mode == "function" else step
    applied, given = np.zeros(SHAPE), np.zeros(SHAPE)
    weight_type = tf.int32 if number == "whole" else tf.float32
    for each in range(6):
        weights = np.full(hvd.size(), 8)
        weights[-1] = [8, 1, 0][each % 3]
        own = gradients(each)
        given += np.average(own, 0, weights=weights)
        own[-1] *= np.nan if weights[-1] == 0 else 1  # a mean of nothing
        [reduced] = step(
            tf.constant(own[hvd.rank()]), tf.constant(weights[hvd.rank()], weight_type)
        )
        assert_same_on_all_ranks([reduced])
        applied += reduced.numpy()
        assert not np.allclose(applied, given, atol=0.01)  # something is left out
        remembered = hvd.allreduce(compression.state()[0], op=hvd.Sum)
        np.testing.assert_allclose(applied + remembered, given, atol=1e-4)


@both
@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("where", ["compressed", also("beside")])
def test_a_step_that_is_not_finite_leaves_no_trace(kind, mode, value, where):
    variables = [tf.Variable(tf.zeros(SHAPE)), tf.Variable(tf.zeros([3]))]
    compression = make(kind)
    reduce = GradientReducer(ReductionOptions(name=kind, compression=compression))
    step = lambda g: reduce(g, variables)  # noqa: E731
    step = tf.function(step) if mode == "function" else step
    applied, given = np.zeros(SHAPE), np.zeros(SHAPE)
    for number in range(6):
        own = gradients(number)
        mine, other = own[hvd.rank()], np.ones(3, "float32")
        before = values(compression.state())
        if number % 2 == 0:
            given += np.mean(own, 0)
        elif hvd.rank() == hvd.size() - 1:
            (mine if where == "compressed" else other).flat[-1] = value
        [reduced, beside] = step([tf.constant(mine), tf.constant(other)])
        assert_same_on_all_ranks([np.nan_to_num(reduced)])
        if number % 2 == 0:
            applied += reduced.numpy()
            np.testing.assert_array_equal(beside, np.ones(3))
            continue
        assert np.isnan(reduced).all()
        for now, state in zip(values(compression.state()), before):
            np.testing.assert_array_equal(now, state)
    remembered = hvd.allreduce(compression.state()[0])
    np.testing.assert_allclose(applied + remembered, given, atol=1e-4)


@both
def test_a_quarantine_loses_nothing_of_the_others(kind):
    variable = tf.Variable(tf.zeros(SHAPE))
    compression = make(kind)
    options = ReductionOptions(name=kind, compression=compression, quarantine=True)
    reduce = GradientReducer(options)
    applied, given = np.zeros(SHAPE), np.zeros(SHAPE)
    for number in range(4):
        own = gradients(number)
        given += np.mean(own[: -1 if number % 2 else None], 0)
        if number % 2:
            own[-1][0, 0] = np.nan
        [reduced] = reduce([tf.constant(own[hvd.rank()])], [variable])
        applied += reduced.numpy()
        remembered = hvd.allreduce(compression.state()[0])
        np.testing.assert_allclose(applied + remembered, given, atol=1e-4)


def test_power_sgd_is_exact_where_the_rank_suffices():
    variable = tf.Variable(tf.zeros(SHAPE))
    compression = make("powersgd")
    reduce = GradientReducer(ReductionOptions(name="exact", compression=compression))
    u, v = gradients(0)[0][:, :1], gradients(1)[0][:1]
    for part in (1.0, 0.0, 2.0):  # a gradient of zeros in between does no harm
        [reduced] = reduce([tf.constant(part * (hvd.rank() + 1) * u @ v)], [variable])
        mean = (hvd.size() + 1) / 2
        np.testing.assert_allclose(reduced, part * mean * u @ v, atol=1e-5)
    np.testing.assert_allclose(compression.state()[0], np.zeros(SHAPE), atol=1e-5)


@both
def test_converges_as_without(kind):
    """Least squares on both ranks' samples; without the feedback it would stop elsewhere."""
    random = np.random.default_rng(0)
    x = random.normal(size=(hvd.size(), 32, 6)).astype("float32")
    best = random.normal(size=SHAPE).astype("float32")
    y = x @ best
    own_x, own_y = tf.constant(x[hvd.rank()]), tf.constant(y[hvd.rank()])
    weights = tf.Variable(tf.zeros(SHAPE))
    compression = make(kind)

    @tf.function
    def step():
        with tfhvd.DistributedGradientTape(tf.GradientTape(), compression=compression) as tape:
            loss = tf.reduce_mean(tf.reduce_sum((own_x @ weights - own_y) ** 2, -1))
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        return loss

    for _ in range(150):
        loss = step()
    assert float(loss) < 1e-4
    np.testing.assert_allclose(weights, best, atol=1e-2)


@both
def test_what_it_does_not_suit_is_sent_as_it_is(kind):
    variables = [tf.Variable(tf.zeros([3])), tf.Variable(tf.zeros([9, 2])), tf.Variable([1, 2])]
    compression = hvd.Compression.topk(least=64) if kind == "topk" else make(kind)
    reduce = GradientReducer(
        ReductionOptions(name="plain", op=hvd.Sum, compression=compression, groups=1)
    )
    rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([4]), tf.constant([9, 2]))
    vector, slices, whole = reduce([tf.ones([3]), rows, tf.constant([1, 2])], variables)
    np.testing.assert_array_equal(vector, [hvd.size()] * 3)
    np.testing.assert_array_equal(tf.convert_to_tensor(slices)[4], [hvd.size()] * 2)
    np.testing.assert_array_equal(whole, [hvd.size(), 2 * hvd.size()])
    assert not compression.state()


def fresh_compression(kind):
    kinds = hvd.Compression
    return kinds.topk(0.3, least=4) if kind == "topk" else kinds.powersgd(1)


def trained(kind, steps=2):
    keras = keras_of("keras")
    model = make_model(keras)
    compression = (
        hvd.Compression.topk(0.3, least=4) if kind == "topk" else hvd.Compression.powersgd(1)
    )
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.05), compression=compression)
    model.compile(optimizer, "mse")
    x, y = data(seed=hvd.rank())
    for _ in range(steps):
        model.optimizer.apply_gradients(zip(own_gradients(model, x, y), model.trainable_variables))
    return model, compression


def go_on(model):
    x, y = data(seed=hvd.rank())
    for _ in range(3):
        model.optimizer.apply_gradients(zip(own_gradients(model, x, y), model.trainable_variables))
    return [np.array(v) for v in model.trainable_variables]


@both
def test_keras_saves_it(kind, tmp_path):
    model, compression = trained(kind)
    file = tmp_path / "model.keras"
    model.save(file)
    state = [v.numpy() for v in compression.state()]
    assert any(np.any(v) for v in state)
    expected = go_on(model)
    fresh = fresh_compression(kind)
    opened = hvd.load_model(file, compression=fresh)
    for mine, saved in zip(fresh.state(), state):
        np.testing.assert_array_equal(mine, saved)
    for mine, other in zip(go_on(opened), expected):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    plain = keras_of("keras").models.load_model(file)
    assert type(plain.optimizer) is keras_of("keras").optimizers.Adam
    assert int(plain.optimizer.iterations) == 2


def shared_path(tmp_path):
    """One folder for all ranks: rank 0's."""
    return pathlib.Path(hvd.broadcast_object(str(tmp_path), 0))


@both
@pytest.mark.parametrize("gathered", [True, False])
def test_what_rank_0_saves_is_each_ranks_own(kind, gathered, tmp_path):
    """All ranks open its file: none has another one's left-over gradients."""
    model, compression = trained(kind)
    file = shared_path(tmp_path) / "model.keras"
    state = [v.numpy() for v in compression.state()]
    if gathered:
        with compression.gathered():
            if hvd.rank() == 0:
                model.save(file)
    elif hvd.rank() == 0:
        model.save(file)
    assert len(compression.saved().left_out) == 1  # it holds the others' no longer
    hvd.barrier()
    fresh = fresh_compression(kind)
    opened = hvd.load_model(file, compression=fresh)
    count = len(state) - len(compression.shared_state)
    assert any(np.any(v) for v in state[:count])
    for number, (mine, saved) in enumerate(zip(fresh.state(), state)):
        if number < count and not gathered and hvd.rank() > 0:
            saved = np.zeros_like(saved)
        np.testing.assert_array_equal(mine, saved)
    if gathered:
        expected = go_on(model)
        for mine, other in zip(go_on(opened), expected):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


@both
def test_weights_of_rank_0_bring_each_rank_its_own(kind, tmp_path):
    """Into a compression that has left out something else since."""
    model, compression = trained(kind)
    file = shared_path(tmp_path) / "model.weights.h5"
    state = [v.numpy() for v in compression.state()]
    with compression.gathered(root_rank=1):
        if hvd.rank() == 1:
            model.save_weights(file)
    hvd.barrier()
    go_on(model)
    model.load_weights(file)
    for mine, saved in zip(compression.state(), state):
        np.testing.assert_array_equal(mine, saved)


@both
def test_tensorflow_saves_it(kind, tmp_path):
    model, compression = trained(kind)
    folder = shared_path(tmp_path)
    state = [v.numpy() for v in compression.state()]
    with compression.gathered():
        if hvd.rank() == 0:
            tf.train.Checkpoint(model=model, compression=compression).save(str(folder / "point"))
    hvd.barrier()
    other, fresh = trained(kind, steps=0)
    fresh.build(other.trainable_variables)
    path = tf.train.latest_checkpoint(str(folder))
    restored = tf.train.Checkpoint(model=other, compression=fresh).restore(path)
    restored.assert_existing_objects_matched()
    assert len(fresh.state()) == len(state)
    for mine, saved in zip(fresh.state(), state):
        np.testing.assert_array_equal(mine, saved)


def test_what_is_gathered_is_of_the_same_variables():
    compression = fresh_compression("topk")
    compression.build([tf.Variable(tf.zeros([4, 3])) for _ in range(1 + hvd.rank() % 2)])
    text = r"different numbers of variables: \[1, 2.*compression.build"
    with pytest.raises(RuntimeError, match=text), compression.gathered():
        pass


@both
def test_fit_saves_it_of_all_ranks(kind, tmp_path):
    """Where one rank alone has a callback that saves at the end of an epoch."""
    keras, file = keras_of("keras"), shared_path(tmp_path) / "model.keras"
    model, compression = trained(kind, steps=0)
    x, y = data(seed=hvd.rank())
    states = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: states.append([v.numpy() for v in compression.state()])
    )
    saves = [keras.callbacks.ModelCheckpoint(file)] if hvd.rank() == 0 else []
    model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[note, *saves])
    assert len(compression.saved().left_out) == 1
    hvd.barrier()
    fresh = fresh_compression(kind)
    hvd.load_model(file, compression=fresh)
    assert any(np.any(v) for v in states[-1])
    for mine, saved in zip(fresh.state(), states[-1]):
        np.testing.assert_array_equal(mine, saved)


def test_what_is_refused():
    with pytest.raises(TypeError, match="pass it to DistributedOptimizer"):
        tfhvd.allreduce(tf.ones([4, 4]), compression=make("topk"))
    with pytest.raises(ValueError, match="Expected: Average or Sum"):
        GradientReducer(ReductionOptions(name="x", op=tfhvd.Max, compression=make("powersgd")))
    with pytest.raises(ValueError, match="above 0, at most 1"):
        hvd.Compression.topk(0.0)
    with pytest.raises(ValueError, match="1 or more"):
        hvd.Compression.powersgd(0)
