"""Kills ranks of elastic jobs at random times: do the others go on, alike, and after what pause?

    python tests/long/elastic.py [--jobs N] [--seed S] [--way loop|compiled|fit] [--supervisor]
                                 [--exec]

Each job of four ranks trains on this host; up to three of them are killed (SIGKILL) from outside,
some at the same time; with --supervisor also the process of tfhvdrun that supervises the job,
before ranks or at the same time. Every survivor must make all steps, with the same weights as the
others, and the job must end with 0 and leave nothing. Prints a line for each job, and at the end
how long the survivors paused; ends with 1 where anything was wrong.

Every process of a job is a fork of one that has TensorFlow loaded (tests/preloaded.py).
`--exec` starts Python anew for each, as users do. A job takes about 30 s on two quiet cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "launch")]

import children  # noqa: E402  (after its folder is on the path)
import preloaded  # noqa: E402

RANKS, STEPS = 4, 4000
WAYS = ("loop", "compiled", "fit")
SECONDS = 240  # for a job to end by itself

PROGRAM = """
import json, os, sys, time
import numpy as np
import keras
import tensorflow as tf
import tfhvd.keras as hvd
from pathlib import Path
hvd.init()
start, way, steps = hvd.rank(), sys.argv[1], int(sys.argv[2])
keras.utils.set_random_seed(1 + start)
times = []

def step_is_over():
    times.append(time.monotonic())
    if len(times) == 20:
        Path(f"{start}.pid").write_text(str(os.getpid()))

class Net(keras.Model):  # its table's gradients are IndexedSlices
    def __init__(self):
        super().__init__()
        self.table, self.dense = keras.layers.Embedding(50, 8), keras.layers.Dense(200)
        self.last = keras.layers.Dense(1)

    def call(self, x):
        rows = tf.cast(10 * tf.abs(x[:, 0]), tf.int32) % 50
        return self.last(self.dense(x + self.table(rows)))

model = Net()
x = tf.random.normal((16, 8), seed=start)
model(x)
if way == "fit":
    class Times(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            step_is_over()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    data = tf.data.Dataset.from_tensors((x, tf.ones((16, 1)))).repeat(steps)
    first = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(data, callbacks=[first, Times()], verbose=0)
else:
    @tf.function(jit_compile=way == "compiled")
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - 1.0) ** 2)
        return hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    hvd.broadcast_variables(model.variables, 0)
    for _ in range(steps):
        for variable, gradient in zip(model.trainable_variables, step(x)):
            variable.assign_sub(0.01 * tf.convert_to_tensor(gradient))
        step_is_over()
weights = np.concatenate([np.asarray(w).ravel() for w in model.get_weights()])
Path(f"{start}.json").write_text(json.dumps({"times": times, "weights": weights.tobytes().hex()}))
"""


def run(way: str, draw: random.Random, *, supervisor: bool) -> tuple[str, list[float], list[float]]:
    """Runs a job.

    Returns:
        "ok" or what is wrong; how long it paused around each time at which ranks were killed, and
        around each at which the supervisor alone was.
    """
    with tempfile.TemporaryDirectory(prefix="tfhvd-elastic-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
        env = children.environment(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="2")
        words = [sys.executable, "-m", "tfhvd.launch", "--elastic", "-np", str(RANKS)]
        with (
            (folder / "output").open("w+") as output,
            subprocess.Popen(
                [*words, sys.executable, "train.py", way, str(STEPS)],
                cwd=folder,
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as job,
        ):
            try:
                kills, alone, lost = _kill(folder, job, draw, supervisor=supervisor)
                job.wait(SECONDS)
            except subprocess.TimeoutExpired:
                job.terminate()
                job.wait(60)
                kills, alone, lost = [], [], set(range(RANKS))
            said = (folder / "output").read_text(errors="replace")[-3000:]
        wrong, ends = outcome(folder, job.returncode, set(range(RANKS)) - lost, STEPS, said)
        if wrong:
            return wrong, [], []
        events = sorted([*kills, *alone])
        found = dict(zip(events, pauses_after(events, ends)))
        pauses, pauses_alone = (
            [found[at] for at in some if at in found] for some in (kills, alone)
        )
        return "ok", pauses, pauses_alone


def outcome(
    folder: Path, code: int, survivors: set[int], steps: int, said: str
) -> tuple[str, list[list[float]]]:
    """Looks at what a job has left.

    Args:
        folder: of the job.
        code: its exit code.
        survivors: the ranks that were to make all steps, by their numbers at the beginning.
        steps: so many.
        said: what it printed last.

    Returns:
        What is wrong, "" for nothing; when each survivor's steps ended.
    """
    if code:
        return f"WRONG: exit code {code}: {said}", []
    ends = [json.loads((folder / f"{rank}.json").read_text()) for rank in sorted(survivors)]
    if any(len(end["times"]) != steps for end in ends):
        return f"WRONG: steps are lost: {[len(end['times']) for end in ends]}", []
    if len({end["weights"] for end in ends}) != 1:
        return f"WRONG: weights differ: {said}", []
    return "", [end["times"] for end in ends]


def _kill(
    folder: Path, job: subprocess.Popen[bytes], draw: random.Random, *, supervisor: bool
) -> tuple[list[float], list[float], set[int]]:
    """Kills ranks, and the supervisor; returns when ranks, when that alone, and which ranks."""
    pids: dict[int, int] = {}
    deadline = time.monotonic() + SECONDS
    while len(pids) < RANKS and job.poll() is None and time.monotonic() < deadline:
        for rank in range(RANKS):
            with contextlib.suppress(OSError, ValueError):
                pids[rank] = int((folder / f"{rank}.pid").read_text())
        time.sleep(0.02)
    kills: list[float] = []
    alone: list[float] = []
    lost: set[int] = set()
    victims = draw.sample(range(RANKS), draw.randint(1, RANKS - 1))
    while victims and job.poll() is None:
        time.sleep(draw.random() * 0.6)
        if supervisor:
            at = time.monotonic()
            os.kill(children.supervisor_of(job.pid), signal.SIGKILL)
            if draw.random() < 0.5:
                alone.append(at)
                time.sleep(0.6 + draw.random() * 0.6)
        kills.append(time.monotonic())
        for _ in range(draw.choice((1, 1, 1, 2))):
            if victims:
                victim = victims.pop()
                lost.add(victim)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[victim], signal.SIGKILL)
    return kills, alone, lost


def pauses_after(events: Iterable[float], ends: Sequence[Sequence[float]]) -> list[float]:
    """Says for each event how long a survivor went without ending a step, at most.

    A step that was nearly done may still end after the event: what counts is the longest pause
    until the next event, or for five seconds, that the event or these fall into.

    Args:
        events: when they were, in their order.
        ends: when each survivor's steps ended. Events after the last step are left out.
    """
    over = min(times[-1] for times in ends)
    known = [at for at in events if at < over]
    return [
        max(_longest_pause(times, at, min(after, at + 5.0)) for times in ends)
        for at, after in zip(known, [*known[1:], math.inf])
    ]


def _longest_pause(times: Sequence[float], at: float, until: float) -> float:
    return max(
        (
            after - before
            for before, after in zip(times, times[1:])
            if after > at and before < until
        ),
        default=0.0,
    )


def print_pauses(of: str, pauses: list[float]) -> None:
    if len(pauses) < 2:
        return
    worst = statistics.quantiles(pauses, n=100)[98]
    print(
        f"{of} {len(pauses)} times: survivors paused {1e3 * statistics.median(pauses):.0f} "
        f"ms (median), {1e3 * worst:.0f} (p99), {1e3 * max(pauses):.0f} (most)"
    )


def main() -> int:
    """Runs them one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, help="printed where not given")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--supervisor", action="store_true", help="kill that of tfhvdrun, too")
    parser.add_argument("--exec", action="store_true", help="start Python as users do")
    options = parser.parse_args()
    with preloaded.start_python_by_fork(not options.exec):
        return kill_and_report(options)


def kill_and_report(options: argparse.Namespace) -> int:
    """Runs the jobs, and prints what there is to say; returns the exit code."""
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    draw = random.Random(seed)
    pauses: list[float] = []
    pauses_alone: list[float] = []
    wrong = 0
    for number in range(1, options.jobs + 1):
        way = options.way or draw.choice(WAYS)
        said, found, found_alone = run(way, draw, supervisor=options.supervisor)
        wrong += said != "ok"
        pauses += found
        pauses_alone += found_alone
        figures = ", ".join(f"{1e3 * pause:.0f}" for pause in found)
        print(f"{number}/{options.jobs} {way}: {said} ({figures} ms)", flush=True)
    print_pauses("ranks killed", pauses)
    print_pauses("the supervisor alone killed", pauses_alone)
    print(f"{options.jobs - wrong} of {options.jobs} jobs ok")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
