"""Ranks that come to an elastic job whose script trains more than once."""

from __future__ import annotations

import sys

import pytest
from launching import EITHER_KERAS, TAPE_MODEL, grown, launch, script, wait_until_gone

pytestmark = [pytest.mark.usefixtures("preloaded_jobs"), pytest.mark.thorough]

# All ranks have the same weights, and have said the same.
ALIKE = """
weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
every = hvd.allgather(tf.constant(weights)[tf.newaxis]).numpy()
assert (every == every[0]).all(), "weights differ"
all_said = hvd.allgather_object(said)
assert all(each == all_said[0] for each in all_said), all_said
"""

# The head is trained, then all of the model, until a third rank has trained with the others for
# three epochs. What lies between both the third one does without the others.
TWO_FITS = (
    EITHER_KERAS
    + """
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
from tfhvd.ops.admission import waiting_ranks
hvd.init()
start, way = hvd.rank(), sys.argv[2]
keras.utils.set_random_seed(1 + os.getpid())
base = keras.Sequential([keras.layers.Dense(8, activation="relu")])
model = keras.Sequential([base, keras.layers.Dense(1)])
x = np.random.default_rng(1).random((64, 4)).astype("float32")
y = x.sum(1, keepdims=True)
data = {"x": x, "y": y, "batch_size": 8, "verbose": 0}
averages = [hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback()]

def mark(place):
    if start == 0:
        open(f"{__file__}.{place}", "w").close()

class UntilOneWaits(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 2:
            mark("waits")
        while way == "waits" and epoch == 2 and waiting_ranks() == 0:
            time.sleep(0.02)

class UntilTheyAreThree(keras.callbacks.Callback):
    since = 0
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.05)
        self.since += hvd.size() == 3
        self.model.stop_training = self.since == 3

def compiled():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    model.compile(optimizer, loss="mse", metrics=["mae"])
    return optimizer

while start == 2 and not os.path.exists(f"{__file__}.{way}"):
    time.sleep(0.02)
first = int(hvd.broadcast(7 + hvd.rank(), 0))
base.trainable = False
compiled()
history = model.fit(**data, epochs=3, callbacks=[*averages, UntilOneWaits()])
mark("comes later")
results = model.evaluate(x, y, verbose=0, return_dict=True)
between = hvd.broadcast_object([hvd.rank(), history.history["loss"][-1]], 0)
hvd.barrier()
assert hvd.rank() == start, (hvd.rank(), start)
said = [first, history.epoch, history.history, results, between]
base.trainable = True
optimizer = compiled()
history = model.fit(**data, epochs=10**6, callbacks=[*averages, UntilTheyAreThree()])
assert len(model.trainable_variables) == 4 and len(history.history["mae"]) == len(history.epoch)
assert history.epoch == list(range(len(history.epoch))), history.epoch
assert int(optimizer.iterations.numpy()) == 8 * len(history.epoch)
said += [history.epoch, history.history]
"""
    + ALIKE
    + """
print(f"rank {hvd.rank()} of {hvd.size()}, {first}, {between[0]}\\n", end="", flush=True)
"""
)


@pytest.mark.parametrize(
    ("package", "way"),
    [
        ("keras", "waits"),
        pytest.param("keras", "comes later", marks=pytest.mark.thorough),
        pytest.param("tf_keras", "waits", marks=pytest.mark.thorough),
        pytest.param("tf_keras", "comes later", marks=pytest.mark.thorough),
    ],
)
def test_a_rank_comes_to_the_second_fit(tmp_path, package, way):
    """It waits in the first one, or begins it, when that is over."""
    result = grown(tmp_path, TWO_FITS, package, way)
    lines = [f"rank {rank} of 3, 7, 0" for rank in range(3)]
    assert sorted(result.out.splitlines()) == lines, result.err
    assert result.err.count("rank 2 does not train 'sequential_1' in this fit") == 1, result.err
    assert result.err.count("rank 2 on host") == 1 + (way == "waits"), result.err


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["waits", "comes later"])
def test_a_rank_comes_to_a_large_model_that_was_broadcast_before_the_first_fit(tmp_path, way):
    """Its variables are more than is kept, and stay as they are here until the second one."""
    before = "model.build((None, 4))\nhvd.broadcast_variables(model.variables, 0)\n"
    program = TWO_FITS.replace("base.trainable = False", before + "base.trainable = False")
    result = grown(tmp_path, program.replace("Dense(8,", "Dense(8_000,"), "keras", way)
    lines = [f"rank {rank} of 3, 7, 0" for rank in range(3)]
    assert sorted(result.out.splitlines()) == lines, result.err


# Once another rank has come to a fit the first one is killed, and the other one ends that fit.
RELAY = (
    EITHER_KERAS
    + """
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
os.environ["TFHVD_CHECK_SYNC"] = "off"
hvd.init()
keras.utils.set_random_seed(1 + os.getpid())
"""
    + TAPE_MODEL
    + """
class Alone(keras.Sequential):
    def train_step(self, data):
        return {"process": tf.constant(float(os.getpid()))}

own = Alone([keras.layers.Dense(1)])
own.compile("sgd", "mse")
tapes = sys.argv[2] == "tapes"
model = (OfATape if tapes else keras.Sequential)([keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
model.compile(optimizer if tapes else hvd.DistributedOptimizer(optimizer), loss="mse")
x = np.random.default_rng(1).random((64, 4)).astype("float32")
y = x.sum(1, keepdims=True)

class Until(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.05)
        if phase == 2:
            self.model.stop_training = hvd.size() == 2
        elif kept_on_since:
            self.model.stop_training = epoch >= kept_on_since[0] + 2
        elif hvd.size() == 2 and epoch > 5:
            if hvd.rank() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            kept_on_since.append(epoch)

places = []
for phase in range(3):
    mine = own.fit(x, y, verbose=0)
    assert mine.history["process"] == [float(os.getpid())], mine.history
    kept_on_since = []
    model.fit(x, y, batch_size=8, epochs=10**6, verbose=0, callbacks=[Until()])
    places.append(int(hvd.broadcast(10 * phase + os.getpid() % 10, 0)) // 10)
    assert places == list(range(phase + 1)), places
rows = hvd.allgather_object([weight.tolist() for weight in model.get_weights()])
assert len(rows) == 2 and rows[0] == rows[1], rows
print(f"rank {hvd.rank()} of {hvd.size()}\\n", end="", flush=True)
"""
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("package", "way"), [("keras", "optimizer"), ("keras", "tapes"), ("tf_keras", "optimizer")]
)
def test_ranks_that_came_later_tell_those_that_come_after_them(tmp_path, package, way):
    """None of the first rank's fits is known to those that are left but by what it has told them.

    Before each one every rank trains a model by itself.
    """
    path = script(tmp_path, RELAY)
    words = ("-np", 1, "--min-np", 1, "--max-np", 2, "--blacklist-cooldown-range", 0.1, 0.1)
    result = launch(*words, "--no-prefix", sys.executable, path, package, way, timeout=150)
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == ["rank 0 of 2", "rank 1 of 2"], result.err
    assert wait_until_gone(str(path)) == []


# Each `fit` of the loop has one epoch, so that nobody can be let in between two.
LOOP_OF_FITS = (
    EITHER_KERAS
    + """
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
start, way = hvd.rank(), sys.argv[2]
keras.utils.set_random_seed(1 + os.getpid())
"""
    + TAPE_MODEL
    + """
model = (OfATape if way == "tape" else keras.Sequential)([keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)
model.compile(optimizer if way == "tape" else hvd.DistributedOptimizer(optimizer), loss="mse")
x = np.random.default_rng(1).random((64, 4)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
data = hvd.shard(data, shuffle=True).batch(4)

class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.3)

said, since, epoch = [], 0, 0
while since < 3:
    first = {} if way == "anew" else {"initial_epoch": epoch}
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                 hvd.callbacks.MetricAverageCallback(), Slow()]
    last = 1 if way == "anew" else epoch + 1
    history = model.fit(data, epochs=last, verbose=0, callbacks=callbacks, **first)
    assert history.epoch == [last - 1], history.epoch
    said.append([history.epoch, history.history])
    if way != "tape":
        said.append(model.evaluate(x, x.sum(1, keepdims=True), verbose=0))
    since = int(hvd.broadcast((since + 1) * (hvd.size() == 3), 0))
    epoch += 1
said.append(int(model.optimizer.iterations.numpy()))
"""
    + ALIKE
    + """
print(f"rank {hvd.rank()} of {hvd.size()}\\n", end="", flush=True)
"""
)


@pytest.mark.parametrize(
    ("package", "way"),
    [
        ("keras", "on"),
        pytest.param("keras", "anew", marks=pytest.mark.thorough),
        pytest.param("keras", "tape", marks=pytest.mark.thorough),
        pytest.param("tf_keras", "on", marks=pytest.mark.thorough),
        pytest.param("tf_keras", "anew", marks=pytest.mark.thorough),
    ],
)
def test_a_rank_comes_to_a_loop_of_fits_of_one_epoch(tmp_path, package, way):
    result = grown(tmp_path, LOOP_OF_FITS, package, way)
    lines = [f"rank {rank} of 3" for rank in range(3)]
    assert sorted(result.out.splitlines()) == lines, result.err
    assert result.err.count("tfhvdrun: rank 2 joins") == 1, result.err


# After `fit`, what a rank that has come cannot do as the others did.
THEN = """
for _ in range(60):
    {deed}
    time.sleep(0.05)
print(f"rank {{hvd.rank()}} of {{hvd.size()}}\\n", end="", flush=True)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("deed", "says"),
    [
        ("model.predict(x, verbose=0)", "'sequential_1' predicts here, after a fit that is over"),
        ("hvd.allreduce(tf.zeros([1 << 15]))", "a collective that a late rank cannot replay"),
        (
            "tf.function(lambda: hvd.allreduce(1.0))()",
            "a collective that a late rank cannot replay",
        ),
    ],
)
def test_nobody_comes_where_it_would_go_on_otherwise(tmp_path, deed, says):
    program = TWO_FITS.replace("base.trainable = True", THEN.format(deed=deed), 1)
    program = program.partition("optimizer = compiled()\nhistory")[0]
    if "predict" in deed:  # the others fit on, and need a place to let it in
        program += TWO_FITS[TWO_FITS.index("base.trainable = True") :]
        program = program.replace("self.since == 3", "epoch == 30")
    result = grown(tmp_path, program, "keras", "comes later")
    assert result.out.count("rank 0 of 2\n") == 1 and "of 3" not in result.out, result.out
    assert says in result.err, result.err
    assert result.err.count("cannot join: before training, the script called a collective") == 1, (
        result.err
    )
    assert "joins" not in result.err
