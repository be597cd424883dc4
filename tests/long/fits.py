"""Kills ranks of a script that trains several times, while others take the place of the lost.

    python tests/long/fits.py [--jobs N] [--seed S]

Each job of two to three ranks trains a model in four phases of 30 epochs: by either Keras, with an
optimizer or a tape that reduces the gradients, in one call of `fit` or in one for each epoch, and
between the phases it freezes other layers, evaluates, and agrees on something. Ranks are killed
(SIGKILL) from outside at random, also those that have not been let in yet. At the end all ranks
must have equal weights, the same number of updates, and the whole history of each phase; the job
must end with 0. Prints a line for each job; ends with 1 where anything was wrong. A job takes about
40 s on two quiet cores.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import children  # noqa: E402  (after its folder is on the path)

SECONDS = 300  # for a job to end
MOST_KILLS = 5

PROGRAM = """
import hashlib, importlib, json, os, sys, time
package, way, calls = sys.argv[1:]
keras = importlib.import_module(package)
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
keras.utils.set_random_seed(1 + os.getpid())

class OfATape(keras.Sequential):
    def train_step(self, data):
        x, y = data[:2]
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)

x = np.random.default_rng(1).random((64, 4)).astype("float32")
y = x.sum(1, keepdims=True)
layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
model = (OfATape if way == "tape" else keras.Sequential)(layers)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0),
             hvd.callbacks.MetricAverageCallback(), Slow()]
said, epochs = [], []
for phase in range(4):
    optimizer = keras.optimizers.Adam(0.01)
    model.compile(optimizer if way == "tape" else hvd.DistributedOptimizer(optimizer), loss="mse")
    data = hvd.shard(tf.data.Dataset.from_tensor_slices((x, y)), shuffle=True).batch(4)
    for last in [30] if calls == "one call" else range(1, 31):
        first = 0 if calls == "one call" else last - 1
        history = model.fit(
            data, initial_epoch=first, epochs=last, verbose=0, callbacks=callbacks
        )
        said.append([history.epoch, history.history])
        epochs += history.epoch
    if phase < 3:
        if way == "optimizer":
            said.append(model.evaluate(x, y, verbose=0))
        said.append(float(hvd.allreduce(tf.constant(float(phase + hvd.rank())))))
    if phase == 2:
        hvd.broadcast_object([phase], 0)
    for number, layer in enumerate(layers):
        layer.trainable = (phase + number) % 2 == 0
    print(f"phase {phase}", flush=True)
bits = b"".join(np.asarray(weight).tobytes() for weight in model.get_weights())
digest = hashlib.sha256(bits + json.dumps(said).encode()).hexdigest()
whole = epochs == 4 * list(range(30))
print("end", digest, int(model.optimizer.iterations.numpy()), whole, flush=True)
"""


def members(output: str) -> int:
    """How many ranks take part, as the launcher has said."""
    sizes = re.findall(r"the job continues with (\d+)", output)
    return int(sizes[-1]) if sizes else 2


def ranks_of(script: Path) -> list[int]:
    """The processes that run the script, those that wait to be let in among them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[1:2] == [bytes(script)]:
            found.append(int(folder.name))
    return found


def run(package: str, way: str, calls: str, draw: random.Random) -> str:
    """Runs a job; returns "ok" and how many ranks were killed, or what is wrong."""
    with tempfile.TemporaryDirectory(prefix="tfhvd-fits-") as name:
        script, output = Path(name) / "train.py", Path(name) / "output"
        script.write_text(PROGRAM, encoding="utf-8")
        options = "-np 2 --min-np 1 --max-np 3 --blacklist-cooldown-range 0.1 0.1 --no-prefix"
        launch = [sys.executable, "-m", "tfhvd.launch", *options.split()]
        with output.open("w") as file:
            job = subprocess.Popen(
                [*launch, sys.executable, str(script), package, way, calls],
                env=children.environment(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="2"),
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        kills, deadline = 0, time.monotonic() + SECONDS
        try:
            while job.poll() is None and time.monotonic() < deadline:
                time.sleep(draw.uniform(1.5, 7.0))
                text, ranks = output.read_text(errors="replace"), ranks_of(script)
                # Once the first one has come to the end, nobody may be lost any more.
                if kills < MOST_KILLS and ranks and members(text) > 1 and "phase 2" not in text:
                    os.kill(draw.choice(ranks), signal.SIGKILL)
                    kills += 1
            code = job.poll()
        finally:
            job.terminate()
            job.wait(60)
        text = output.read_text(errors="replace")
    ends = [line for line in text.splitlines() if line.startswith("end ")]
    wrong = ""
    if code != 0:
        wrong = "it does not end" if code is None else f"exit code {code}"
    elif len(set(ends)) != 1 or len(ends) != members(text):
        wrong = "ranks differ"
    elif not ends[0].endswith(" True"):
        wrong = "histories are not whole"
    return f"WRONG: {wrong}\n{text}" if wrong else f"ok ({kills} ranks killed)"


def main() -> int:
    """Runs the jobs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, help="printed where not given")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    draw = random.Random(seed)
    good = 0
    for number in range(1, options.jobs + 1):
        package, way = draw.choice(["keras", "tf_keras"]), draw.choice(["optimizer", "tape"])
        calls = draw.choice(["one call", "one by one"])
        told = run(package, way, calls, draw)
        good += told.startswith("ok")
        print(f"{number}/{options.jobs} {package}, {way}, {calls}: {told}", flush=True)
    print(f"{good} of {options.jobs} jobs ok")
    return 0 if good == options.jobs else 1


if __name__ == "__main__":
    sys.exit(main())
