"""Kills a rank again and again while others take the place of the lost: is the model as good?

    python tests/long/joins.py [--losses N] [--every S] [--seed S]

One job of three ranks learns scanned digits by `fit`, with a state of `hvd.elastic`. Every few
seconds a rank is killed (SIGKILL) from outside, at random; another one comes. At the end all ranks
must have equal weights and the same number of updates, the job must end with 0 and leave nothing,
and digits that it has not seen must be told as well as by a job of as many epochs that lost
nobody, but for 2 of 100. Prints how long those that were there paused for each rank that came, from
the last batch before to the first one after; ends with 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import children  # noqa: E402  (after its folder is on the path)

RANKS = 3
LIMIT = 600  # seconds for a loss and its replacement, or for the end

PROGRAM = """
import json, os, sys, time
import numpy as np
import keras
import tensorflow as tf
import tfhvd.keras as hvd
from pathlib import Path
from sklearn.datasets import load_digits
hvd.init()
keras.utils.set_random_seed(1 + os.getpid())
epochs = int(sys.argv[1])  # 0: until the file "end" is there
log = Path(f"{os.getpid()}.log").open("a")

def note(what, value):
    print(json.dumps([what, value, time.monotonic()]), file=log, flush=True)

hvd.on_membership_change(lambda: note("size", hvd.size()))
x, y = load_digits(return_X_y=True)
x = (x / 16.0).astype("float32")
order = np.random.default_rng(1).permutation(len(x))
x, y = x[order], y[order]
test, train_x, train_y = (x[:360], y[:360]), x[360:], y[360:]
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, activation="relu"),
                          keras.layers.Dense(10, activation="softmax")])
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
              loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.optimizer.build(model.trainable_variables)
state = hvd.elastic.KerasState(model, epoch=0, over=False)

class Notes(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        note("batch", batch)
        time.sleep(0.01)

@hvd.elastic.run
def train(state):
    note("begins", hvd.size())
    callbacks = [hvd.elastic.CommitStateCallback(state, 5), Notes()]
    while not state.over:
        part = hvd.shard((train_x, train_y), seed=state.epoch)
        model.fit(*part, batch_size=32, callbacks=callbacks, verbose=0)
        state.epoch += 1
        ends = state.epoch >= epochs if epochs else Path("end").exists()
        state.over = bool(hvd.broadcast_object(ends, 0))

train(state)
weights = np.concatenate([np.asarray(w).ravel() for w in model.get_weights()])
updates = int(model.optimizer.iterations.numpy())
every = hvd.allgather(tf.constant(weights)[tf.newaxis]).numpy()
steps = hvd.allgather(tf.constant([updates])).numpy().tolist()
equal = bool((every == every[0]).all()) and len(set(steps)) == 1
accuracy = float(model.evaluate(*test, verbose=0)[1])
if hvd.rank() == 0:
    Path("result").write_text(json.dumps([equal, accuracy, state.epoch, updates]))
"""


class Job:
    """One job, in a folder of its own."""

    def __init__(self, folder: Path, epochs: int, *words: str) -> None:
        self.folder = folder
        (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
        env = children.environment(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="2")
        launch = [sys.executable, "-m", "tfhvd.launch", "-np", str(RANKS), *words]
        with (folder / "output").open("w") as output:
            self.process = subprocess.Popen(
                [*launch, sys.executable, "train.py", str(epochs)],
                cwd=folder,
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def notes(self) -> dict[int, list[tuple[str, int, float]]]:
        """What each process has noted so far."""
        return {
            int(path.stem): [
                tuple(json.loads(line))
                for line in path.read_text().splitlines()
                if line.endswith("]")
            ]
            for path in self.folder.glob("*.log")
        }

    def end(self) -> tuple[bool, float, int, int]:
        """Waits for its end; returns whether weights are equal, accuracy, epochs and updates."""
        self.process.wait(LIMIT)
        if self.process.returncode:
            raise RuntimeError(f"exit code {self.process.returncode}: {self.output()[-4000:]}")
        equal, accuracy, epochs, updates = json.loads((self.folder / "result").read_text())
        return equal, accuracy, epochs, updates

    def output(self) -> str:
        """What the job and its launcher have printed."""
        return (self.folder / "output").read_text(errors="replace")


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def await_ranks(job: Job, known: set[int]) -> list[int]:
    """Waits until as many ranks train as there may be, one at least that was not known."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and job.process.poll() is None:
        notes = job.notes()
        training = [
            pid
            for pid, noted in notes.items()
            if alive(pid) and any(what == "batch" for what, _, _ in noted)
        ]
        if len(training) == RANKS and set(training) - known:
            return training
        time.sleep(0.1)
    raise RuntimeError(f"no rank has come: {job.output()[-4000:]}")


LONG = 0.4  # seconds: of a longer pause more is printed


def pauses(notes: dict[int, list[tuple[str, int, float]]]) -> list[tuple[float, float]]:
    """From when on, and until when, each process that was there paused for one that came."""
    found = []
    for noted in notes.values():
        batches = [at for what, _, at in noted if what == "batch"]
        begun = [(size, at) for what, size, at in noted if what == "begins"]
        for (before, _), (size, at) in zip(begun, begun[1:]):
            earlier = [one for one in batches if one <= at]
            later = [one for one in batches if one > at]
            if size > before and earlier and later:
                found.append((earlier[-1], later[0]))
    return found


def main() -> int:
    """Runs both jobs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--losses", type=int, default=50, metavar="N")
    parser.add_argument("--every", type=float, default=5.0, metavar="S", help="seconds (5)")
    parser.add_argument("--seed", type=int, help="printed where not given")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tfhvd-joins-") as name:
        folder = Path(name)
        words = ("--max-np", str(RANKS), "--blacklist-cooldown-range", "0.1", "0.1")
        job = Job(folder, 0, *words)
        try:
            known: set[int] = set()
            for number in range(1, options.losses + 1):
                training = await_ranks(job, known)
                known |= set(training)
                time.sleep(options.every * (0.5 + draw.random()))
                victim = draw.choice(training)
                os.kill(victim, signal.SIGKILL)
                print(f"{number}/{options.losses}: process {victim} is killed", flush=True)
            await_ranks(job, known)
            (folder / "end").touch()
            equal, accuracy, epochs, updates = job.end()
        finally:
            job.process.terminate()
            job.process.wait(60)
        notes = job.notes()
        found = [after - before for before, after in pauses(notes)]
        for before, after in pauses(notes):
            if after - before > LONG:
                print(f"a pause of {after - before:.2f} s:")
                for pid, noted in notes.items():
                    near = [one for one in noted if before - 0.1 <= one[2] <= after + 0.1]
                    print(f"    process {pid}: {near}")
        if found and max(found) > LONG:
            print(job.output()[-20000:])
    with tempfile.TemporaryDirectory(prefix="tfhvd-joins-") as name:
        whole = Job(Path(name), epochs)
        _, wanted, _, _ = whole.end()
    print(
        f"{epochs} epochs, {updates} updates; accuracy {accuracy:.3f}, without losses {wanted:.3f}"
    )
    if len(found) > 1:
        worst = statistics.quantiles(found, n=100)[98]
        print(
            f"{len(found)} pauses for ranks that came: {1e3 * statistics.median(found):.0f} ms "
            f"(median), {1e3 * worst:.0f} (p99), {1e3 * max(found):.0f} (most)"
        )
    good = equal and accuracy >= wanted - 0.02
    print("ok" if good else "WRONG: weights differ" if not equal else "WRONG: it learns less")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
