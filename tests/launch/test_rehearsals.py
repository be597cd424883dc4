"""What a rank does that comes to an elastic job, before it is let in."""

from __future__ import annotations

import pytest
from launching import EITHER_KERAS, grown
from with_xla import needs_xla

pytestmark = [pytest.mark.usefixtures("preloaded_jobs"), pytest.mark.thorough]

OUTSIDE = """
import tensorflow as tf
import tfhvd as hvd
from tfhvd.ops import _kernels
from tfhvd.ops.names import Name
os.environ["TFHVD_REHEARSE"] = "0"
hvd.init()
comes = hvd.size() == 3
if comes:
    assert (hvd.rank(), hvd.local_rank(), hvd.local_size()) == (2, 2, 3)
    assert hvd.is_initialized()
    try:
        hvd.metrics()
    except hvd.NotInitializedError as error:
        assert "has not let it in yet" in str(error), error
    else:
        raise AssertionError("there are no metrics yet")
    try:  # as in a graph that is loaded
        _kernels.barrier(Name("loaded", False), 0)
    except tf.errors.FailedPreconditionError as error:
        assert "run the graph in a function of hvd.elastic.run" in str(error), error
    else:
        raise AssertionError("a barrier of one rank alone")
state = hvd.elastic.ObjectState()

@hvd.elastic.run
def train(state):
    while hvd.size() < 3:
        state.commit()
        time.sleep(0.01)
    assert hvd.allreduce(1.0, op=hvd.Sum, name="first").numpy() == 3.0

train(state)
print(f"rank {hvd.rank()} of {hvd.size()}\\n", end="", flush=True)
"""


def test_a_rank_that_comes_has_its_place_and_waits_where_it_begins_to_train(tmp_path):
    result = grown(tmp_path, OUTSIDE, timeout=90)
    assert sorted(result.out.splitlines()) == [f"rank {rank} of 3" for rank in range(3)]


FIT = (
    EITHER_KERAS
    + """
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
from tfhvd.runtime.elastic.replay import comers
hvd.init()
comes, way = hvd.size() == 3, sys.argv[2]
keras.utils.set_random_seed(1 + os.getpid())
traced, seen, epochs = [], [], []

class Net(keras.Sequential):
    def train_step(self, *args, **kwargs):
        traced.append(1)
        if way == "killed" and comes and not os.path.exists(f"{__file__}.died"):
            open(f"{__file__}.died", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "fails" and comes and traced == [1, 1]:
            super().train_step(*args, **kwargs)  # which makes all variables
            raise ValueError("the second time is too early")
        return super().train_step(*args, **kwargs)

own = keras.layers.Dense(1, kernel_initializer="ones")
model = Net([keras.layers.Dense(8), keras.layers.Dropout(0.5),
             keras.layers.BatchNormalization(synchronized=way in ("compiled", "fails")),
             *([own] if way == "unbuilt" else []), keras.layers.Dense(1)])
compression = hvd.Compression.powersgd(rank=1) if way == "compression" else hvd.Compression.none
optimizer = hvd.PartialDistributedOptimizer(
    keras.optimizers.Adam(0.01), local_layers=[own], compression=compression,
    backward_passes_per_step=1 if way in ("compression", "unbuilt") else 2)
model.compile(optimizer, loss="mse", metrics=["mae"], jit_compile=way == "compiled")
if way != "unbuilt":
    model.build((None, 4))
    optimizer.build(model.trainable_variables)
x = np.random.default_rng(1).random((64, 4)).astype("float32")
y = x.sum(1, keepdims=True)

def values():
    variables = optimizer.variables
    every = [*model.variables, *(variables() if callable(variables) else variables)]
    found = [variable.numpy() for variable in every]
    if way == "compression":  # nothing was left out yet
        found.append(sum(float(abs(v.numpy()).sum()) for v in compression.left_out))
    if way == "unbuilt":
        found = [weight.numpy() for weight in own.trainable_weights] or [np.ones((8, 1)), [0.0]]
    return found

if way == "apart" and not comes:  # so that what it traces later has other names
    specs = tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1])
    with comers.do_without():  # for what is traced is never run
        tf.function(lambda data: model.train_step(data)).get_concrete_function(specs)
if way == "ahead" and comes:  # the same on this rank, without a collective
    model.evaluate(x[:8], y[:8], verbose=0)
before = values()

class Watch(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        same = [np.array_equal(a, b) for a, b in zip(before, values())]
        seen.append((len(traced), bool(all(same))))
    def on_train_batch_end(self, batch, logs=None):
        assert seen, "a callback was told of what is rehearsed"
        time.sleep(0.01)
    def on_epoch_end(self, epoch, logs=None):
        epochs.append(hvd.size())
        self.model.stop_training = epochs.count(3) == 3

def batches():
    while True:
        for start in range(0, 64, 8):
            yield x[start:start + 8], y[start:start + 8]

given = dict(x=x, y=y, batch_size=8)
if way == "once":
    given = dict(x=batches(), steps_per_epoch=8)
if way == "agents":
    class Rows(keras.utils.PyDataset):
        def __len__(self):
            return 8
        def __getitem__(self, number):
            return x[8 * number:][:8], y[8 * number:][:8]
    given = dict(x=Rows(agents=2, use_multiprocessing=True))
model.fit(**given, epochs=10**6, initial_epoch=5, verbose=0,
          callbacks=[Watch(), hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
alike = [weight for layer in model.layers if layer is not own for weight in layer.trainable_weights]
weights = np.concatenate([weight.numpy().ravel() for weight in alike])
every = hvd.allgather(weights[None]).numpy()
assert (every == every[0]).all(), "weights differ"
if way == "compression":
    assert hvd.check_divergence(compression.shared_state) == [], "factors differ"
if comes:
    [(before, unchanged)] = seen
    print(f"traced before: {before > 0}, later: {len(traced) > before}, unchanged: {unchanged}")
"""
)


@pytest.mark.parametrize(
    ("package", "way"),
    [
        ("keras", "graph"),
        pytest.param("keras", "compiled", marks=[needs_xla, pytest.mark.thorough]),
        # Data that can be read only once are left for the training.
        pytest.param("keras", "once", marks=pytest.mark.thorough),
        # It has other names than on the other ranks: all trace it anew.
        pytest.param("keras", "apart", marks=pytest.mark.thorough),
        pytest.param("keras", "ahead", marks=pytest.mark.thorough),
        # The next one comes in the place of one that is killed meanwhile.
        pytest.param("keras", "killed", marks=pytest.mark.thorough),
        pytest.param("keras", "compression", marks=pytest.mark.thorough),
        pytest.param("keras", "unbuilt", marks=pytest.mark.thorough),
        # Its variables are there when it traces the step for the second time: all do so anew.
        pytest.param("keras", "fails", marks=pytest.mark.thorough),
        pytest.param("tf_keras", "fails", marks=pytest.mark.thorough),
        pytest.param("tf_keras", "compiled", marks=[needs_xla, pytest.mark.thorough]),
        pytest.param("keras", "agents", marks=pytest.mark.thorough),
        pytest.param("tf_keras", "graph", marks=pytest.mark.thorough),
        pytest.param("tf_keras", "unbuilt", marks=pytest.mark.thorough),
    ],
)
def test_a_step_of_fit_is_rehearsed_and_nothing_is_left_of_it(tmp_path, package, way):
    result = grown(tmp_path, FIT, package, way)
    before, later = way != "once", way in ("once", "apart", "ahead", "fails")
    line = f"traced before: {before}, later: {later}, unchanged: True"
    assert result.out.splitlines() == [line], result.err
    assert ("without having rehearsed a step of fit" in result.err) == (way == "fails")


FUNCTION = """
import tensorflow as tf
import tfhvd as hvd
way = sys.argv[1]
if way == "off":
    os.environ["TFHVD_REHEARSE"] = "0"
hvd.init()
comes = hvd.size() == 3
weight = tf.Variable(1.0)
state = hvd.elastic.TensorFlowState([weight], step=0, sizes=[])
calls, traced = [], []

@tf.function
def gradient(weight):
    traced.append(1)
    return hvd.allreduce(weight * 0 + 1, name="gradient")

@hvd.elastic.run
def train(state):
    calls.append(len(traced))
    assert hvd.broadcast_object([way], 0) == [way]
    if way == "fails":
        assert len(hvd.allgather(tf.ones([1, 1]), name="rows")) == hvd.size(), "rows are missing"
    state.sizes.append(hvd.size())
    end = state.step + 50
    while hvd.size() < 3 or state.step < end:
        weight.assign_add(gradient(weight))
        state.step += 1
        if state.step % 5 == 0:
            state.commit()
        time.sleep(0.002)

train(state)
assert weight.numpy() == 1 + state.step, (weight.numpy(), state.step)
print(f"sizes {state.sizes}\\n", end="", flush=True)
if comes:
    print(f"the function began with {calls} functions traced\\n", end="", flush=True)
"""


@pytest.mark.parametrize(
    ("way", "calls"),
    [
        ("works", [0, 1]),
        pytest.param("fails", [0, 0], marks=pytest.mark.thorough),
        pytest.param("off", [0], marks=pytest.mark.thorough),
    ],
)
def test_a_function_of_elastic_run_is_rehearsed_up_to_its_first_commit(tmp_path, way, calls):
    result = grown(tmp_path, FUNCTION, way, timeout=90)
    assert sorted(result.out.splitlines()) == [
        *["sizes [2, 3]"] * 3,
        f"the function began with {calls} functions traced",
    ], result.err
    said = "rank 2 comes to the job without having rehearsed the function of hvd.elastic.run"
    assert (said in result.err) == ("rows are missing" in result.err) == (way == "fails")


COMPILED = """
import tensorflow as tf
import tfhvd as hvd
hvd.init()
state = hvd.elastic.ObjectState(step=0)

@tf.function(jit_compile=True)
def gathered(value):
    return hvd.allgather(value, name="rows")

@hvd.elastic.run
def train(state):
    end = state.step + 20
    while hvd.size() < 3 or state.step < end:
        rows = gathered(tf.ones([2, 1])) if hvd.size() == 3 else []
        state.step += 1
        if state.step % 5 == 0:
            state.commit()
        time.sleep(0.01)
    print(f"{len(rows)} rows\\n", end="", flush=True)

train(state)
"""


@needs_xla
@pytest.mark.thorough
def test_a_compiled_function_has_the_shapes_of_the_place_that_it_is_rehearsed_for(tmp_path):
    """Results of one rank alone do not fit: the rehearsal ends there; what it compiled stays."""
    result = grown(tmp_path, COMPILED, timeout=90)
    assert result.out.splitlines() == ["6 rows"] * 3, result.err
    assert "comes to the job without having rehearsed" in result.err
