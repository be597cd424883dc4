"""Long jobs in which nothing hangs, at the limits that users have: is nothing said of a hang?

    python tests/long/clean.py [--minutes M] [--only NAME]

Two ranks train by `fit`, and one of them keeps the other waiting, for M minutes (10 unless said
otherwise) each time: it validates alone after each of two epochs, compiles, or reads its first
epoch. `tfhvdrun --on-hang abort` must say nothing. Takes about 4 M minutes, as all run at once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CASES = ("validates", "compiles", "reads")

PROGRAM = """
import sys, time
import keras
import tensorflow as tf
import tfhvd.keras as hvd
case, seconds = sys.argv[1], float(sys.argv[2])
hvd.init()
odd = hvd.rank() == 1
ONE = (tf.ones((1, 2)), tf.ones((1, 1)))

def until(end):
    while time.monotonic() < end:
        yield

class Slow(keras.callbacks.Callback):
    def on_test_batch_end(self, batch, logs=None):
        time.sleep(0.05)

def validate():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    data = tf.data.Dataset.from_tensors(ONE).repeat()
    for _ in until(time.monotonic() + seconds):
        model.evaluate(data.take(1000), verbose=0, callbacks=[Slow()])

def compile_layers():
    for _ in until(time.monotonic() + seconds):
        @tf.function(jit_compile=True)
        def layers(x):
            for _ in range(1000):
                x = tf.tanh(x @ x) + tf.reduce_sum(x)
            return x
        layers(tf.ones((4, 4)))

class Keeps(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if odd and case == "validates":
            validate()
        elif odd and case == "compiles" and epoch == 0:
            compile_layers()

def elements():
    for step in range(20):
        if odd and case == "reads":
            first = not data_was_read
            for _ in until(time.monotonic() + (seconds / 20 if first else 0)):
                pass
        yield [1.0, 2.0], [1.0]
    data_was_read.append(True)

data_was_read = []
data = tf.data.Dataset.from_generator(
    elements,
    output_signature=(tf.TensorSpec((2,), tf.float32), tf.TensorSpec((1,), tf.float32)),
).batch(20 if case == "reads" else 1)
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
same_start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
model.fit(data, epochs=2, callbacks=[same_start, Keeps()], verbose=0)
print("done", flush=True)
"""


def main() -> int:
    """Runs all of them at once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, metavar="M")
    parser.add_argument("--only", choices=CASES, metavar="NAME", help=", ".join(CASES))
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="tfhvd-clean-") as folder:
        (Path(folder) / "train.py").write_text(PROGRAM, encoding="utf-8")
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        env |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}
        words = [sys.executable, "-m", "tfhvd.launch", "--on-hang", "abort", "-np", "2"]
        began, seconds = time.monotonic(), str(60 * options.minutes)
        jobs = {
            case: subprocess.Popen(
                [*words, sys.executable, "train.py", case, seconds],
                cwd=folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for case in ([options.only] if options.only else CASES)
        }
        for case, job in jobs.items():
            out, errors = job.communicate()
            told = [line for line in errors.splitlines() if line.startswith("tfhvdrun")]
            good = job.returncode == 0 and out.count("done") == 2 and not told
            wrong += not good
            said = "nothing was said" if good else f"WRONG (exit code {job.returncode}): {errors}"
            minutes = (time.monotonic() - began) / 60
            print(f"{case}, after {minutes:.1f} minutes: {said}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
