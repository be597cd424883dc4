"""Keras' callbacks on one rank, where tf.keras is tf_keras: the other one is Keras 3 then."""

import json

import mpi
import pytest

PROGRAM = """
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd

hvd.init()
assert "keras" not in sys.modules
folder = pathlib.Path({folder!r}) / str(hvd.rank())
folder.mkdir()
x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
for package in ("tf_keras", "keras"):
    keras = __import__(package)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    place = str(folder / package)
    callbacks = [
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.TensorBoard(place, update_freq="batch"),
        hvd.callbacks.CSVLogger(f"{{place}}.csv"),
        hvd.callbacks.ModelCheckpoint(f"{{place}}.keras", "loss", save_best_only=True),
        hvd.callbacks.BestModelCheckpoint("loss", filepath=f"{{place}}.best.keras"),
    ]
    for _ in range(2):
        model.fit(x, y, batch_size=4, callbacks=callbacks, validation_data=(x, y), verbose=0)
print(json.dumps(sorted(path.name for path in folder.iterdir())))
"""


@pytest.mark.thorough
def test_both_keras(tmp_path):
    job = mpi.run_ranks(2, PROGRAM.format(folder=str(tmp_path)), timeout=180)
    assert job.code == 0, job
    [files, none] = [json.loads(rank.out.splitlines()[-1]) for rank in job.ranks]
    names = ("", ".best.keras", ".csv", ".keras")
    assert files == [f"{package}{name}" for package in ("keras", "tf_keras") for name in names]
    assert not none
