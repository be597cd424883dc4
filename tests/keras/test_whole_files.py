"""Files that ModelCheckpoint saves to: whole ones, whenever the process is killed."""

import mpi
import pytest
from variants import also

pytestmark = [pytest.mark.thorough, pytest.mark.variant]

# Its second save is killed in the middle of the weights.
PROGRAM = """
import os, signal, sys
import numpy as np
import {package} as keras
import tfhvd.keras as hvd
hvd.init()
path, dies, weights_only = sys.argv[1], sys.argv[2] == "dies", {weights_only}
saves = 0

@keras.saving.register_keras_serializable("tests")
class Dying(keras.layers.Dense):
    def save_own_variables(self, store):
        global saves
        super().save_own_variables(store)
        saves += 1
        if dies and saves == 2:
            os.kill(os.getpid(), signal.SIGKILL)

def model():
    made = keras.Sequential([keras.Input((2,)), Dying(500), keras.layers.Dense(1)])
    made.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), "mse")
    return made

if os.path.exists(path):
    if weights_only:
        model().load_weights(path)
    else:
        keras.models.load_model(path, compile=False)
    print("read")
save = hvd.callbacks.{callback}(filepath=path, save_weights_only=weights_only, monitor="loss")
model().fit(np.ones((4, 2)), np.ones((4, 1)), epochs=2, verbose=0, callbacks=[save])
"""


@pytest.mark.parametrize(
    ("package", "callback", "name"),
    [
        ("keras", "ModelCheckpoint", "a.keras"),
        also("keras", "ModelCheckpoint", "a.weights.h5"),
        also("tf_keras", "ModelCheckpoint", "a.keras"),
        also("tf_keras", "ModelCheckpoint", "a.weights.h5"),
    ],
)
def test_a_save_that_is_killed_leaves_the_one_before(package, callback, name, tmp_path):
    program = tmp_path / "program.py"
    weights_only = name.endswith(".weights.h5")
    program.write_text(
        PROGRAM.format(package=package, callback=callback, weights_only=weights_only)
    )
    folder = tmp_path / "saved"
    folder.mkdir()
    path = folder / name

    def run(how):
        return mpi.run_ranks(1, [str(program), str(path), how], mpirun=False)

    killed = run("dies")
    assert killed.ranks[0].code == 137, killed
    assert sorted(file.name for file in folder.iterdir()) == [name, f"unfinished-{name}"]
    again = run("lives")
    assert again.code == 0 and again.ranks[0].out == "read\n", again
    assert [file.name for file in folder.iterdir()] == [name]
