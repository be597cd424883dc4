"""Makes jobs hang, or one rank of them slow, in many ways: is the cause named, and nobody else?

    python tests/long/hangs.py [--sample N] [--seed S] [--only TEXT] [--from NUMBER]

Each job trains; at its third step one rank does something else. `tfhvdrun` must name that rank and
what it does, or nothing where the rank goes on working. Prints a line for each and then how often
each cause was taken for which class; ends with 1 where an innocent rank was named, where a job that
works was said to hang, or where less than 95 of 100 were told right. Takes about 15 s for each on
two quiet cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 2  # seconds without progress, in the place of 60
SECONDS = 300  # for a job to end by itself

# What the odd rank does -> the class it is to be told as; none: nothing is to be said.
CAUSES = {
    "stopped": "stopped",
    "sleeps": "held",
    "deadlocked": "held",
    "input": "input",
    "another": "different",
    "one more": "different",
    "traces": "compiling",
    "evaluates": None,
    "computes": None,
    "slow input": None,
}
WAYS = ("loop", "compiled", "fit")
SIZES = (2, 4, 8)

PROGRAM = """
import ctypes, os, signal, sys, time
import keras
import tensorflow as tf
import tfhvd.keras as hvd
cause, way, victim = sys.argv[1], sys.argv[2], int(sys.argv[3])
hvd.init()
odd = hvd.rank() == victim
STEP, LONG = 3, 600

def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

def evaluate():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    data = tf.data.Dataset.from_tensors((tf.ones((1, 1)), tf.ones((1, 1)))).repeat()
    end = time.monotonic() + 12
    while time.monotonic() < end:
        model.evaluate(data.take(100), verbose=0)

def deed():
    if cause == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif cause == "sleeps":
        time.sleep(LONG)
    elif cause == "deadlocked":
        lock = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(lock)
    elif cause == "another":
        hvd.allreduce(tf.ones(2), name="another")
    elif cause == "one more":
        hvd.allgather(tf.ones(2), name="one more")
    elif cause == "traces":
        @tf.function
        def traced():
            time.sleep(LONG)
        traced()
    elif cause == "evaluates":
        evaluate()
    elif cause == "computes":
        work(12)

def elements():
    for step in range(8):
        if odd and step == STEP and cause == "input":
            time.sleep(LONG)
        if odd and step == STEP and cause == "slow input":
            work(12)
        yield [1.0, 2.0], [1.0]

data = tf.data.Dataset.from_generator(
    elements,
    output_signature=(tf.TensorSpec((2,), tf.float32), tf.TensorSpec((1,), tf.float32)),
).batch(1)
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
if way == "fit":
    class Deed(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if odd and batch == STEP:
                deed()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    same_start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(data, callbacks=[same_start, Deed()], verbose=0)
else:
    @tf.function(jit_compile=way == "compiled")
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        weights = model.trainable_variables
        return hvd.DistributedGradientTape(tape).gradient(loss, weights)
    for number, (x, y) in enumerate(data):
        if odd and number == STEP:
            deed()
        for weight, gradient in zip(model.trainable_variables, step(x, y)):
            weight.assign_sub(0.01 * gradient)
print("done", flush=True)
"""


@dataclass(frozen=True)
class Hang:
    """One job: what its odd rank does, of how many, and how it trains."""

    cause: str
    size: int
    victim: int
    way: str

    def __str__(self) -> str:
        return f"{self.cause}-{self.size}-{self.victim}-{self.way}"


def everything() -> list[Hang]:
    """All of them: the odd rank is the first, the last, or one between."""
    return [
        Hang(cause, size, victim, way)
        for cause, size, way in itertools.product(CAUSES, SIZES, WAYS)
        for victim in sorted({0, size // 2, size - 1})
    ]


@dataclass(frozen=True)
class Outcome:
    """What was said: a class (None: nothing) and the ranks; and whether the job ended well."""

    kind: str | None
    ranks: tuple[int, ...]
    ended_well: bool
    output: str


def run(hang: Hang) -> Outcome:
    """Runs the job to its end."""
    with tempfile.TemporaryDirectory(prefix="tfhvd-hang-") as folder:
        (Path(folder) / "train.py").write_text(PROGRAM, encoding="utf-8")
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        env |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}
        words = [sys.executable, "-m", "tfhvd.launch", "--on-hang", "abort", "--stop-timeout", "1"]
        words += ["--stall-check-warning-time-seconds", str(LIMIT), "-np", str(hang.size)]
        words += [sys.executable, "train.py", hang.cause, hang.way, str(hang.victim)]
        ran = subprocess.run(
            words, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        found = [json.loads(path.read_text()) for path in Path(folder).glob("tfhvd-verdict-*")]
    kind = found[0]["kind"] if found else None
    ranks = tuple(found[0]["ranks"]) if found else ()
    return Outcome(kind, ranks, ran.returncode == 0, ran.stderr[-3000:])


def judge(hang: Hang, outcome: Outcome) -> str:
    """Says "ok", "unknown" or what is wrong, which begins with "WRONG"."""
    wanted = CAUSES[hang.cause]
    if wanted is None:
        good = outcome.ended_well and outcome.kind is None
        return "ok" if good else f"WRONG: it works, and {outcome.kind} was said: {outcome.output}"
    # Of two ranks that call different collectives neither is the odd one.
    both = hang.size == 2 and wanted == "different"
    if not both and set(outcome.ranks) - {hang.victim}:
        return f"WRONG: ranks {outcome.ranks} were named for {outcome.kind}"
    if outcome.kind is None:
        return f"WRONG: nothing was said: {outcome.output}"
    return "ok" if outcome.kind == wanted else f"another class: {outcome.kind}"


def main() -> int:
    """Runs them one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, metavar="N", help="so many of them, drawn")
    parser.add_argument("--seed", type=int, help="of the sample; printed where not given")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text")
    parser.add_argument("--from", type=int, default=1, metavar="NUMBER", dest="first")
    options = parser.parse_args()
    chosen = [hang for hang in everything() if options.only in str(hang)]
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    if options.sample is not None:
        print(f"seed {seed}", flush=True)
        chosen = random.Random(seed).sample(chosen, min(options.sample, len(chosen)))
    taken: Counter[tuple[str, str]] = Counter()
    results: Counter[str] = Counter()
    for number, hang in list(enumerate(chosen, 1))[options.first - 1 :]:
        outcome = run(hang)
        said = judge(hang, outcome)
        taken[hang.cause, outcome.kind or "nothing"] += 1
        results[said.partition(":")[0]] += 1
        print(f"{number}/{len(chosen)} {hang}: {said}", flush=True)
    for (cause, kind), count in sorted(taken.items()):
        print(f"{cause:12} taken for {kind:12} {count:4}")
    print(*(f"{count} {said}" for said, count in results.items()), sep=", ")
    return 1 if results["WRONG"] or results["ok"] < 0.95 * sum(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
