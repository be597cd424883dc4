"""Elastic jobs with collectives on GPUs: where a rank is lost they go back to their last commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import children
import pytest

pytestmark = pytest.mark.thorough

TRAIN = """
import os, signal, sys
import tensorflow as tf
from tensorflow.python.framework.load_library import load_pluggable_device_library

load_pluggable_device_library(os.environ["TFHVD_TEST_DEVICE"])
import tfhvd as hvd

hvd.init()
start, victims = hvd.rank(), [int(n) for n in sys.argv[1].split(",")]
state = hvd.elastic.ObjectState(step=0, total=0.0)
resets = []
state.register_reset_callbacks([lambda: resets.append(hvd.size())])

def train(state):
    while state.step < 60:
        if start in victims and state.step == 25 + 10 * victims.index(start):
            os.kill(os.getpid(), signal.SIGKILL)
        with tf.device("/GPU:0"):
            one = tf.identity(tf.constant([1.0]))
        total = hvd.allreduce(one, op=hvd.Sum, name="gradient")
        assert "GPU:0" in total.device
        state.total += float(total.numpy()[0])
        state.step += 1
        if state.step % 10 == 0:
            state.commit()

(hvd.elastic.run(train) if sys.argv[2] == "run" else train)(state)
print(f"{start}: {state.step} steps, {state.total}, resets {resets}, rank {hvd.rank()}", flush=True)
"""


# Trained on the CPU, in a job that has had a collective on a GPU.
FIT = """
import os, signal, sys
import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.load_library import load_pluggable_device_library

load_pluggable_device_library(os.environ["TFHVD_TEST_DEVICE"])
import tfhvd.keras as hvd

hvd.init()
start, victim = hvd.rank(), int(sys.argv[1])
with tf.device("/GPU:0"):
    hvd.allreduce(tf.identity(tf.constant([1.0])), name="gradient")
keras.utils.set_random_seed(start)
with tf.device("/CPU:0"):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
    model.compile(hvd.DistributedOptimizer(optimizer, device_dense="/CPU:0"), loss="mse")
state = hvd.elastic.KerasState(model, epoch=0, batch=0)

class Dies(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if (start, state.epoch, batch) == (victim, 1, 7):
            os.kill(os.getpid(), signal.SIGKILL)

begun = []

@hvd.elastic.run
def train(state):
    begun.append((state.epoch, int(optimizer.iterations)))
    callbacks = [
        hvd.elastic.CommitStateCallback(state, 5),
        hvd.elastic.UpdateEpochStateCallback(state),
        Dies(),
    ]
    x = np.random.default_rng(start).normal(size=(80, 4))
    with tf.device("/CPU:0"):
        model.fit(x, x[:, :1], batch_size=8, epochs=3 - state.epoch, verbose=0,
                  callbacks=callbacks)

train(state)
weights = hvd.allgather_object([w.tolist() for w in model.get_weights()])
alike = weights[0] == weights[-1]
print(f"{start}: {state.epoch} epochs, begun {begun}, equal {alike}", flush=True)
"""


def launch(
    folder: Path, fakes: dict[str, str], ranks: int, *words: str, program: str = TRAIN
) -> tuple[int, str]:
    (folder / "train.py").write_text(program)
    tfhvdrun = [sys.executable, "-m", "tfhvd.launch", "--elastic", "--no-prefix"]
    done = subprocess.run(
        [*tfhvdrun, "-np", str(ranks), sys.executable, "train.py", *words],
        cwd=folder,
        env=children.environment(TF_CPP_MIN_LOG_LEVEL="3", **fakes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("ranks", "victims", "total", "resets"),
    [
        # Three ranks until step 20, the last commit before rank 1's end; two from there on.
        (3, "1", 20 * 3 + 40 * 2, [2]),
        # The second rank that dies is rank 0, at step 35: the last commit is that of step 30.
        (3, "2,0", 20 * 3 + 10 * 2 + 30 * 1, [2, 1]),
    ],
)
def test_the_survivors_go_on_from_the_last_commit(tmp_path, fakes, ranks, victims, total, resets):
    code, said = launch(tmp_path, fakes, ranks, victims, "run")
    assert code == 0, said
    for rank in set(range(ranks)) - {int(n) for n in victims.split(",")}:
        assert f"{rank}: 60 steps, {float(total)}, resets {resets}, rank " in said, said
    assert "It has collectives on GPUs: it continues from its last commit." in said


def test_fit_goes_on_from_the_last_commit(tmp_path, fakes):
    code, said = launch(tmp_path, fakes, 3, "0", program=FIT)
    assert code == 0, said
    for rank in (1, 2):
        # Ten steps an epoch; the last commit is that of the fifth step of the second one.
        assert f"{rank}: 3 epochs, begun [(0, 0), (1, 15)], equal True" in said, said


def test_where_nothing_is_committed_the_error_says_what_to_type(tmp_path, fakes):
    code, said = launch(tmp_path, fakes, 2, "1", "alone")
    assert code == 1, said
    # In a line, or in a traceback if the rank fails before it has heard of the other one's end.
    assert "A rank failed, and collectives on GPUs cannot be finished without it" in said, said
    assert "With hvd.elastic.run (docs/elastic.md) the job continues from its last commit" in said
