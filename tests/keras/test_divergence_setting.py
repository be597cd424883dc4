"""TFHVD_DIVERGENCE_STEPS in a `fit`: a setting of the whole process, which a job of its own has."""

import mpi
import pytest

# Weights that differ from the start, and that each rank is to keep.
PROGRAM = """
import keras
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
keras.utils.set_random_seed(hvd.rank())
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), loss="mse")
apart = hvd.callbacks.BroadcastGlobalVariablesCallback(None)
model.fit(tf.ones((12, 2)), tf.ones((12, 1)), batch_size=2, callbacks=[apart], verbose=0)
print("trained")
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("steps", "when"),
    [("0", None), ("4", "before the first step of fit")],
    ids=["never", "every 4"],
)
def test_the_setting(steps, when):
    job = mpi.run_ranks(2, PROGRAM, env={"TFHVD_DIVERGENCE_STEPS": steps})
    assert job.code == 0, job
    assert [rank.out for rank in job.ranks] == ["trained\n"] * 2
    said = [line for line in job.ranks[0].err.splitlines() if "Weights differ" in line]
    assert bool(said) == (when is not None), job
    assert all(when in line for line in said), job
    assert "Weights differ" not in job.ranks[1].err, job
