"""Makes jobs hang, or one rank of them slow, in many ways: is the cause named, and nobody else?

    python tests/long/hangs.py [--sample N] [--seed S] [--only TEXT] [--from NUMBER] [--at-once K]
    python tests/long/hangs.py --minutes 10 --only=-2-1-fit --at-once 5

Each job trains, on one host or on two (namespaces, which root may make); at its third step one rank
does something else, or it is slower from the first one on. `tfhvdrun` must name that rank and what
it does, or nothing where the rank goes on working; where `mpirun` has started the job, so must the
ranks themselves. Prints a line for each and then how often each cause was taken for which class;
ends with 1 where an innocent rank was named, where a job that works was said to hang, or where less
than 95 of 100 were told right. Takes about 25 s for each on two quiet cores.

With `--minutes`, only jobs in which nothing hangs: one rank evaluates, computes, compiles or reads
for so long, at the limits that users have.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import children  # noqa: E402  (after its folder is on the path)
import choice  # noqa: E402
import control_groups  # noqa: E402
import mpi  # noqa: E402
import network  # noqa: E402

USUAL = 60  # seconds without progress, by which it is told that a job may hang
LIMIT = 2  # in its place
SECONDS = 300  # for a job to end by itself
BUSY = 12.0  # seconds for which a rank works
ENOUGH = 1_200_000_000  # bytes of memory for a rank that takes no more than the others

# What the odd rank does -> the class it is to be told as; none: nothing is to be said. "raised",
# "killed", "memory", "shape" and "cut" are no verdicts' classes: such a job ends by itself, with an
# error, and what tfhvdrun says last is read. Only what "raises and stays" leaves with an exception
# that something holds up, and gets a verdict.
CAUSES = {
    "stopped": "stopped",
    "sleeps": "waits",
    "queue": "waits",
    "deadlocked": "held",
    "library": "held",
    "input": "input",
    "another": "different",
    "one more": "different",
    "other order": "order",
    "traces": "compiling",
    "evaluates": None,
    "computes": None,
    "compiles": None,
    "slow input": None,
    "evaluates slowly": None,
    "input trickles": None,
    "slow at once": None,
    "naps at once": None,
    "leaves": "finished",
    "raises": "raised",
    "raises and stays": "raised",
    "is killed": "killed",
    "takes memory": "memory",
    "other shape": "shape",
    "cut off": "cut",
    "slow network": "network",
}
NETWORK = ("cut off", "slow network")  # only on two hosts
# What ends a job with an error: of what mpirun says then tests/long/faults.py has the cases.
ENDS = ("raises", "is killed", "takes memory", "other shape", "cut off")
WAYS = ("loop", "compiled", "fit")
SIZES = (2, 4, 8)
LAUNCHERS = ("tfhvdrun", "mpirun")

PROGRAM = """
import ctypes, os, queue, signal, sys, time
import keras
import tensorflow as tf
import tfhvd.keras as hvd
from pathlib import Path
cause, way, victim, busy = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
nap = float(sys.argv[5])
hvd.init()
odd = hvd.rank() == victim
STEP, LONG = 3, 600

def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

class Sleeps(keras.callbacks.Callback):
    def on_test_batch_end(self, batch, logs=None):
        time.sleep(0.05)

def evaluate(callbacks=()):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    data = tf.data.Dataset.from_tensors((tf.ones((1, 1)), tf.ones((1, 1)))).repeat()
    end = time.monotonic() + busy
    while time.monotonic() < end:
        model.evaluate(data.take(100), verbose=0, callbacks=list(callbacks))

def deed():
    if cause == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif cause == "sleeps":
        time.sleep(LONG)
    elif cause == "queue":
        queue.Queue().get()
    elif cause == "library":
        tf.queue.FIFOQueue(1, [tf.float32], [()]).dequeue()
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
    elif cause == "evaluates slowly":
        evaluate([Sleeps()])
    elif cause == "computes":
        work(busy)
    elif cause == "compiles":
        end = time.monotonic() + busy
        while time.monotonic() < end:
            @tf.function(jit_compile=True)
            def layers(x):
                for _ in range(400):
                    x = tf.tanh(x @ x) + tf.reduce_sum(x)
                return x
            layers(tf.ones((4, 4)))
    elif cause == "raises":
        raise ValueError("no such value")
    elif cause == "raises and stays":
        held = stays()
        next(held)
        raise ValueError("no such value")
    elif cause == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif cause == "takes memory":
        taken = []
        while True:
            taken.append(bytes([1]) * (50 << 20))
    elif cause == "other shape":
        hvd.allreduce(tf.ones(3), name="shape")
    elif cause == "cut off":
        Path("cut").touch()
    elif cause == "slow network":
        all_do()

def stays():
    try:
        yield
    finally:
        time.sleep(LONG)

def all_do():
    if cause == "other shape":
        hvd.allreduce(tf.ones(2), name="shape")
    elif cause == "slow network":
        hvd.allreduce(tf.ones(1 << 24), name="large")

def every_step(number):
    if cause == "other order":
        for name in ("b", "a") if odd and number == STEP else ("a", "b"):
            hvd.allreduce(tf.ones(2), name=name)
    elif odd and cause == "slow at once" and number < 4:
        work(busy / 4)
    elif odd and cause == "naps at once":
        time.sleep(nap)

def elements():
    for step in range(8):
        if odd and step == STEP and cause == "input":
            time.sleep(LONG)
        if odd and step == STEP and cause == "slow input":
            work(busy)
        yield [1.0, 2.0], [1.0]

def trickle():
    for step in range(8 * 240):
        if odd and step > STEP * 240:
            time.sleep(0.01)
        yield [1.0, 2.0], [1.0]

# TensorFlow may wait for ever for a generator where an exception leaves the loop over its dataset.
if "input" in cause:
    trickles = cause == "input trickles"
    data = tf.data.Dataset.from_generator(
        trickle if trickles else elements,
        output_signature=(tf.TensorSpec((2,), tf.float32), tf.TensorSpec((1,), tf.float32)),
    ).batch(240 if trickles else 1)
else:
    data = tf.data.Dataset.from_tensors((tf.ones((1, 2)), tf.ones((1, 1))))
    data = data.repeat(8) if cause != "cut off" else data.repeat()
    if cause == "leaves":
        # Who leaves a loop over a dataset early waits for TensorFlow's autotuner, for as long again
        # as the loop has run, a minute at most: longer than the limit here, not than the usual one.
        options = tf.data.Options()
        options.autotune.enabled = False
        data = data.with_options(options)
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
if way == "fit":
    class Deed(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            every_step(batch)
            if odd and batch == STEP:
                deed()
            elif batch == STEP:
                all_do()
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
        every_step(number)
        if odd and number == STEP:
            if cause == "leaves":
                break
            deed()
        elif number == STEP:
            all_do()
        for weight, gradient in zip(model.trainable_variables, step(x, y)):
            weight.assign_sub(0.01 * gradient)
print("done", flush=True)
"""


@dataclass(frozen=True)
class Hang:
    """One job: what its odd rank does, of how many on how many hosts, and how it trains."""

    cause: str
    size: int
    victim: int
    way: str
    hosts: int = 1
    launcher: str = "tfhvdrun"

    def __str__(self) -> str:
        name = f"{self.cause}-{self.size}-{self.victim}-{self.way}"
        name += f"-{self.hosts} hosts" if self.hosts > 1 else ""
        return name if self.launcher == "tfhvdrun" else f"{name}-{self.launcher}"


def everything() -> list[Hang]:
    """All of them: the odd rank is the first, the last, or one between."""
    return [
        Hang(cause, size, victim, way, hosts, launcher)
        for launcher, hosts, cause, size, way in itertools.product(
            LAUNCHERS, (1, 2), CAUSES, SIZES, WAYS
        )
        # The first rank of the second host is between them.
        for victim in sorted({0, size // 2, size - 1})
        if _is_possible(cause, way, hosts, launcher)
        and (cause not in NETWORK or victim == size // 2)
    ]


def _is_possible(cause: str, way: str, hosts: int, launcher: str) -> bool:
    """Whether there is such a job: `fit`, for one, goes on where a rank has fewer batches."""
    if (cause, way) == ("leaves", "fit") or (hosts == 1 and cause in NETWORK):
        return False
    return launcher == "tfhvdrun" or cause not in ENDS


@dataclass(frozen=True)
class Outcome:
    """What was said: a class (None: nothing) and the ranks; and whether the job ended well."""

    kind: str | None
    ranks: tuple[int, ...]
    ended_well: bool
    output: str


def run(hang: Hang, minutes: float | None = None) -> Outcome:
    """Runs the job to its end.

    Args:
        hang: which.
        minutes: for how long its odd rank works, at the usual limit; None: for a short time, at a
            short one.
    """
    busy = BUSY if minutes is None else 60 * minutes
    nap = LIMIT if minutes is None else USUAL
    words = [hang.cause, hang.way, str(hang.victim), str(busy), str(nap)]
    with contextlib.ExitStack() as stack:
        net = None
        if hang.hosts > 1:
            slow = network.Link(megabits=2) if hang.cause == "slow network" else None
            net = stack.enter_context(network.hosts(hang.hosts, slow))
        if hang.launcher == "mpirun":
            return _run_by_mpirun(hang, net, words, SECONDS + busy, minutes is None)
        return _run_by_tfhvdrun(hang, net, words, SECONDS + busy, minutes is None)


def _run_by_tfhvdrun(
    hang: Hang, net: network.Network | None, arguments: list[str], seconds: float, soon: bool
) -> Outcome:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfhvd-hang-"))
        (Path(folder) / "train.py").write_text(PROGRAM, encoding="utf-8")
        env = children.environment(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="2")
        words = [sys.executable, "-m", "tfhvd.launch", "--on-hang", "abort", "--stop-timeout", "1"]
        if soon:
            words += ["--stall-check-warning-time-seconds", str(LIMIT)]
        if net is None:
            words += ["-np", str(hang.size)]
        else:
            words = [*net.run_on(0), *words, *net.tfhvdrun(hang.size // hang.hosts)]
        if hang.cause == "takes memory":
            group = control_groups.memory(ENOUGH * hang.size)
            words = [*stack.enter_context(control_groups.words_in(*group)), *words]
        words += [sys.executable, "train.py", *arguments]
        job = stack.enter_context(
            subprocess.Popen(
                words,
                cwd=folder,
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        if net is not None and hang.cause == "cut off":
            _await(Path(folder) / "cut", job)
            net.cut_off(1)
        _, errors = job.communicate(timeout=seconds)
        found = verdicts_in(Path(folder))
    if found:
        return Outcome(*found[0], ended_well=False, output=errors[-3000:])
    kind, ranks = told_by_its_end(errors) if job.returncode else (None, ())
    return Outcome(kind, ranks, job.returncode == 0, errors[-3000:])


def _run_by_mpirun(
    hang: Hang, net: network.Network | None, arguments: list[str], seconds: float, soon: bool
) -> Outcome:
    """Runs it until a rank has said why it hangs: mpirun itself would let it hang on."""
    found: list[tuple[str, tuple[int, ...]]] = []

    def watch(processes: mpi.Processes) -> None:
        until = time.monotonic() + seconds
        while processes.run() and not found and time.monotonic() < until:
            time.sleep(0.5)
            found.extend(verdicts_in(processes.folder))
        if found:
            time.sleep(LIMIT)  # for another rank that says something else
            found[:] = verdicts_in(processes.folder)
            processes.kill()

    env = {"KERAS_BACKEND": "tensorflow"}
    if soon:
        env["TFHVD_STALL_CHECK_TIME_SECONDS"] = str(LIMIT)
    slots = hang.size // hang.hosts
    job = mpi.run_ranks(
        hang.size,
        f"import sys\nsys.argv[1:] = {arguments!r}\n{PROGRAM}",
        env=env,
        launcher=() if net is None else net.launcher(slots),
        within=() if net is None else net.run_on(0),
        while_running=watch,
    )
    if not found and job.code:
        # Who has left ends the others with an error, which may come first.
        found += left_by("".join(rank.err for rank in job.ranks))
    kinds = list(dict.fromkeys(kind for kind, _ in found))
    ranks = sorted({rank for _, ranks in found for rank in ranks})
    kind = " and ".join(kinds) or None
    return Outcome(kind, tuple(ranks), job.code == 0, str(job)[-3000:])


def verdicts_in(folder: Path) -> list[tuple[str, tuple[int, ...]]]:
    """The classes and ranks of all verdicts in a folder that are there as a whole."""
    found = []
    for path in sorted(folder.glob("tfhvd-verdict-*")):
        with contextlib.suppress(json.JSONDecodeError):
            written = json.loads(path.read_text())
            found.append((written["kind"], tuple(written["ranks"])))
    return found


def _await(path: Path, job: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists() and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)


def told_by_its_end(errors: str) -> tuple[str | None, tuple[int, ...]]:
    """What the last lines of a job that failed take for its cause, and the ranks they name."""
    first = re.search(r"^tfhvdrun: rank (\d+) on host .* failed first: (.*)$", errors, re.M)
    if first is None:
        return None, ()
    said = errors[first.start() :]
    rank = (int(first[1]),)
    if "Mismatched shapes in allreduce 'shape'" in said:
        return "shape", ()
    left = left_by(said)
    if left:
        return left[0]
    if re.search(r"lost|cannot be reached|no connection|silent", said):
        return "cut", ()
    if "has run out of memory" in first[2]:
        return "memory", rank
    if "SIGKILL" in first[2]:
        return "killed", rank
    return ("raised" if "ValueError: no such value" in said else None), rank


def left_by(errors: str) -> list[tuple[str, tuple[int, ...]]]:
    """The class of a job whose errors say that ranks have left, and these ranks; or nothing."""
    left = re.findall(r"rank (\d+) \(host .*?\) has left the job(: ValueError)?", errors)
    kind = "raised" if any(why for _, why in left) else "finished"
    return [(kind, tuple(sorted({int(rank) for rank, _ in left})))] if left else []


def judge(hang: Hang, outcome: Outcome) -> str:
    """Says "ok", "unknown" or what is wrong, which begins with "WRONG"."""
    wanted = CAUSES[hang.cause]
    if wanted is None:
        good = outcome.ended_well and outcome.kind is None
        return "ok" if good else f"WRONG: it works, and {outcome.kind} was said: {outcome.output}"
    # Of two ranks that call different collectives neither is the odd one.
    both = hang.size == 2 and wanted in ("different", "order")
    if not both and set(outcome.ranks) - {hang.victim}:
        return f"WRONG: ranks {outcome.ranks} were named for {outcome.kind}"
    if outcome.kind is None:
        return f"WRONG: nothing was said: {outcome.output}"
    return "ok" if outcome.kind == wanted else f"another class: {outcome.kind}"


def main() -> int:
    """Runs them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    choice.add_options(parser)
    parser.add_argument("--seed", type=int, help="of the sample; printed where not given")
    parser.add_argument("--without", metavar="TEXT", help="none whose name has this text")
    parser.add_argument("--at-once", type=int, default=1, metavar="K", help="so many side by side")
    parser.add_argument("--minutes", type=float, metavar="M", help="what works does for so long")
    options = parser.parse_args()
    chosen = [hang for hang in everything() if options.only in str(hang)]
    if options.without:
        chosen = [hang for hang in chosen if options.without not in str(hang)]
    if options.minutes is not None:  # what trickles takes its time by itself
        works = {cause for cause, kind in CAUSES.items() if kind is None} - {"input trickles"}
        chosen = [hang for hang in chosen if hang.cause in works]
    if not control_groups.possible():
        print("takes memory: left out, for this needs root, and control groups", flush=True)
        chosen = [hang for hang in chosen if hang.cause != "takes memory"]
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    if options.sample is not None:
        print(f"seed {seed}", flush=True)
        chosen = random.Random(seed).sample(chosen, min(options.sample, len(chosen)))
    taken: Counter[tuple[str, str]] = Counter()
    results: Counter[str] = Counter()
    rest = chosen[options.first - 1 :]
    with ThreadPoolExecutor(options.at_once) as jobs:
        outcomes = jobs.map(functools.partial(run, minutes=options.minutes), rest)
        for number, (hang, outcome) in enumerate(zip(rest, outcomes), options.first):
            said = judge(hang, outcome)
            taken[hang.cause, outcome.kind or "nothing"] += 1
            results[said.partition(":")[0]] += 1
            print(f"{number}/{len(chosen)} {hang}: {said}", flush=True)
    for (cause, kind), count in sorted(taken.items()):
        print(f"{cause:12} taken for {kind:12} {count:4}")
    print(*(f"{count} {said}" for said, count in results.items()), sep=", ")
    total = sum(results.values())
    # One in a small sample is less than it takes to tell 95 of 100 from 94.
    return 1 if results["WRONG"] or total - results["ok"] > max(1, 0.05 * total) else 0


if __name__ == "__main__":
    sys.exit(main())
