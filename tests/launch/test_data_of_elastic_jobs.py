"""Data that `hvd.shard` has divided, where ranks of an elastic job are lost, and others come."""

from __future__ import annotations

import json
import sys
from collections import defaultdict

import pytest
from launching import EITHER_KERAS, grown, launch, script, wait_until_gone

pytestmark = pytest.mark.usefixtures("preloaded_jobs")

SAMPLES = 42  # so that two ranks have parts of one size, and three

# Three epochs after the third rank has come rank 0 is killed; three after the next one all stop.
# What a script does before `fit` with all ranks, it does here: it waits for them, and divides data.
FIT = (
    EITHER_KERAS
    + """
import json
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
start = hvd.rank()
hvd.barrier()
seen = []

def note(number):
    seen.append(int(number))
    return np.float32([number / 100])

def noted(number):
    return tf.ensure_shape(tf.numpy_function(note, [number], tf.float32), [1]), 1.0

numbers = tf.data.Dataset.range(SAMPLES)
data = hvd.shard(numbers, shuffle=sys.argv[2] == "shuffled").map(noted).batch(4)
assert len(data) == -(-SAMPLES // hvd.size() // 4), len(data)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.001)), loss="mse")

class Watch(keras.callbacks.Callback):
    sizes, since = [], 0
    def on_epoch_begin(self, epoch, logs=None):
        seen.clear()
        self.since += 1
        if self.sizes[-1:] != [hvd.size()]:
            self.sizes.append(hvd.size())
            self.since = 1
        if self.sizes == [2, 3] and start == 0 and self.since == 4:
            os.kill(os.getpid(), signal.SIGKILL)
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.01)
    def on_epoch_end(self, epoch, logs=None):
        line = json.dumps([epoch, self.sizes[-1], hvd.size(), seen])
        print(f"seen {line}\\n", end="", flush=True)
        self.model.stop_training = self.sizes == [2, 3, 2, 3] and self.since == 3

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Watch()]
model.fit(data, epochs=10**6, verbose=0, callbacks=callbacks)
""".replace("SAMPLES", str(SAMPLES))
)


@pytest.mark.parametrize(
    ("package", "way"),
    [
        ("keras", "shuffled"),
        pytest.param("keras", "in order", marks=pytest.mark.thorough),
        pytest.param("tf_keras", "shuffled", marks=pytest.mark.thorough),
    ],
)
def test_a_dataset_is_divided_among_those_that_are_there(tmp_path, package, way):
    job = grown(tmp_path, FIT, package, way)
    seen, sizes = defaultdict(list), defaultdict(set)
    for line in job.out.splitlines():
        epoch, *both, numbers = json.loads(line.removeprefix("seen "))
        seen[epoch] += numbers
        sizes[epoch] |= set(both)
    whole = [epoch for epoch in seen if sizes[epoch] == {3} or epoch < min(_of(sizes, {3}))]
    assert len(_of(sizes, {3})) >= 5, sizes
    for epoch in whole:
        assert sorted(seen[epoch]) == list(range(SAMPLES)), epoch
    # With one rank fewer none has more than it had.
    fewer = [epoch for epoch in _of(sizes, {2}) if epoch not in whole]
    assert fewer
    for epoch in fewer:
        assert len(set(seen[epoch])) == len(seen[epoch]) >= 2 * SAMPLES // 3, epoch
    assert "ran out of data" not in job.err
    if way == "shuffled":
        assert seen[0] != seen[1]


def _of(sizes: dict[int, set[int]], size: set[int]) -> list[int]:
    """The epochs in which so many ranks took part from their beginning to their end."""
    return [epoch for epoch, found in sizes.items() if found == size]


ARRAYS = """
import keras
import numpy as np
import tfhvd.keras as hvd
hvd.init()
start = hvd.rank()
x, y = hvd.shard((np.ones((40, 2), "float32"), np.ones((40, 1), "float32")))
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.001)), loss="mse")

class Watch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2 and start == 1:
            os.kill(os.getpid(), signal.SIGKILL)

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Watch()]
model.fit(x, y, epochs=6, verbose=0, callbacks=callbacks)
"""


@pytest.mark.thorough
def test_arrays_stay_divided_and_fit_says_so_once(tmp_path):
    path = script(tmp_path, ARRAYS)
    job = launch("-np", 3, "--elastic", "--no-prefix", sys.executable, path)
    assert job.code == 0, job.err
    assert wait_until_gone(str(path)) == []
    assert job.err.count("hvd.shard has divided arrays among 3 ranks, and 2 take part now") == 1


# All that Keras makes batches of, and for each it has a way of its own to see where an epoch ends.
KINDS = (
    EITHER_KERAS
    + """
import json
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(1.0)
assert hvd.size() == 1
x, y = np.ones((10, 2), "float32"), np.ones((10, 1), "float32")
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)

class Sequence(keras.utils.Sequence if sys.argv[1] == "tf_keras" else keras.utils.PyDataset):
    def __len__(self):
        return 3
    def __getitem__(self, number):
        return x[:4], y[:4]

def batches():
    while True:
        yield x[:4], y[:4]

class Watch(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.counts = []
    def on_epoch_begin(self, epoch, logs=None):
        self.counts.append(0)
    def on_train_batch_end(self, batch, logs=None):
        self.counts[-1] += 1
        assert self.counts[-1] < 9, "this epoch does not end"

for data, words in (
    ((x, y), {"batch_size": 4}),
    ((x, y), {"batch_size": 4, "steps_per_epoch": 3}),
    ((dataset,), {}),
    ((dataset.repeat(),), {"steps_per_epoch": 2}),
    ((Sequence(),), {}),
    ((batches(),), {"steps_per_epoch": 3}),
):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.001)), loss="mse")
    watch = Watch()
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), watch]
    model.fit(*data, **words, epochs=3, verbose=0, callbacks=callbacks)
    print(json.dumps(watch.counts), flush=True)
"""
)


@pytest.mark.parametrize("package", ["tf_keras", "keras"])
def test_epochs_end_after_a_loss_whatever_the_data_are(tmp_path, package):
    path = script(tmp_path, KINDS)
    job = launch("-np", 2, "--elastic", "--no-prefix", sys.executable, path, package)
    assert job.code == 0, job.err
    counts = [json.loads(line) for line in job.out.splitlines()]
    assert counts == [[each] * 3 for each in (3, 3, 3, 2, 3, 3)]
    assert "ran out of data" not in job.err
