"""A stop that one rank is asked for: all ranks save the same step, and the training goes on later.

The training that was stopped, and continued, is the one that was not, to the bit.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import mpi
import pytest
from launching import launch, script, started, wait_until_gone
from variants import also

pytestmark = pytest.mark.usefixtures("preloaded_jobs")
STOPPED = 75

# Arguments: the folder of the checkpoints, or "", and what trains. Prints JSON, a line each.
TRAINING = """
import hashlib, json, os, sys, time
from pathlib import Path
import numpy as np
import tensorflow as tf
import keras
import tfhvd.keras as hvd

hvd.init()
folder, kind = sys.argv[1:]

def say(**what):
    print(json.dumps(what) + "\\n", end="", flush=True)

keras.utils.set_random_seed(7 + hvd.rank())
layers = keras.layers
model = keras.Sequential(
    [layers.Input((4,)), layers.Dense(6), layers.Dropout(0.3), layers.BatchNormalization(),
     layers.Dense(1)]
)
x = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")
batches = hvd.data.Batches((x, x.sum(1, keepdims=True)), 8, shuffle=True)
model.compile(
    hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse", metrics=["mae"]
)
steps = 0

def after_step():
    global steps
    steps += 1
    if steps == 1:
        say(pid=os.getpid())
        if folder:
            Path(f"{folder}.{hvd.rank()}").write_text(str(os.getpid()))
    if kind == "asks" and hvd.rank() == 1 and steps == 9:
        hvd.request_stop()
    time.sleep(0.02)

class Paces(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        after_step()

def fit():
    callbacks = [hvd.BroadcastGlobalVariablesCallback(0), Paces(), hvd.MetricAverageCallback()]
    if folder:
        callbacks.append(hvd.callbacks.Checkpoint(folder, "1 h" if kind == "fit" else 4))
    return model.fit(batches, epochs=6, callbacks=callbacks, verbose=0).history

def loop():
    step = 0
    hvd.broadcast_variables(model.variables, 0)
    state = {"model": model, "batches": batches}
    if folder:
        manager = hvd.checkpoint.Manager(folder)
        step = manager.restore(state) or 0
    for epoch in range(batches.position.epoch, 6):
        for x, y in batches:
            model.train_on_batch(x, y)
            step += 1
            after_step()
            if folder and hvd.should_stop():
                manager.save(step, state)
                raise hvd.StopRequested
    return {}

try:
    history = loop() if kind == "loop" else fit()
except hvd.StopRequested:
    say(stopped=int(model.optimizer.iterations.numpy()), seen=steps)
    raise
optimizer = model.optimizer.variables
digest = hashlib.sha256()
for variable in [*model.variables, *(optimizer() if callable(optimizer) else optimizer)]:
    digest.update(np.asarray(variable.numpy()).tobytes())
say(digest=digest.hexdigest(), history=history, steps=int(model.optimizer.iterations.numpy()))
"""
JOB = ("--transport", "tcp", "--no-prefix", "-np", 2)


@dataclass(frozen=True)
class Ran:
    """How a job has ended, and what its ranks have said."""

    code: int
    said: list[dict]
    err: str

    def of(self, key: str) -> list:
        return [line[key] for line in self.said if key in line]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("stop") / "training.py"
    path.write_text(TRAINING)
    return path


def run(program: Path, folder: str, kind: str, words=JOB, act=None) -> Ran:
    """Runs the program; `act` is told of the job once each rank has said its process."""
    with started(*words, sys.executable, program, folder, kind) as process:
        said = []
        while act is not None and len(said) < 2 and (line := process.stdout.readline()):
            said += [json.loads(line)] if line.startswith("{") else []
        if act is not None:
            act(process.pid, [each["pid"] for each in said])
        out, err = process.communicate(timeout=120)
    said += [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert wait_until_gone(str(program)) == []
    return Ran(process.returncode, said, err)


def whole(program: Path, kind: str, known={}) -> Ran:  # noqa: B006 (what is known stays)
    """The training that nobody stops."""
    if kind not in known:
        known[kind] = run(program, "", kind)
        assert known[kind].code == 0, known[kind].err
    return known[kind]


def check_goes_on(program: Path, folder: str, kind: str, words=JOB) -> None:
    """What was stopped continues, and then is what was never stopped."""
    resumed, expected = run(program, folder, kind, words), whole(program, kind)
    assert resumed.code == 0, resumed.err
    assert sorted(resumed.of("digest")) == sorted(expected.of("digest"))
    for mine, whole_one in zip(resumed.of("history"), expected.of("history")):
        for name, values in mine.items():
            assert values == whole_one[name][-len(values) :]


def sends(whom: str, seconds: float):
    """What sends SIGTERM after so many seconds from the first step on."""

    def act(launcher: int, ranks: list[int]) -> None:
        time.sleep(seconds)
        os.kill(launcher if whom == "launcher" else max(ranks), signal.SIGTERM)

    return act


@pytest.mark.parametrize("kind", ["fit", also("loop")])
@pytest.mark.parametrize("whom", ["rank", "launcher"])
def test_sigterm_at_a_random_moment(tmp_path, program, kind, whom):
    folder = str(tmp_path / "run")
    stopped = run(program, folder, kind, act=sends(whom, random.uniform(0, 0.6)))
    assert stopped.code == STOPPED, stopped.err
    assert len(stopped.of("stopped")) == 2 and len(set(stopped.of("stopped"))) == 1
    assert 0 < stopped.of("stopped")[0] < whole(program, kind).of("steps")[0]
    assert stopped.err.splitlines()[-1] == (
        f"tfhvdrun: all ranks stopped, as they were asked to (exit code {STOPPED})"
    )
    check_goes_on(program, folder, kind)


def test_one_rank_asks_and_the_job_is_not_started_again(tmp_path, program):
    folder = str(tmp_path / "run")
    stopped = run(program, folder, "asks", words=(*JOB, "--max-restarts", 3))
    assert stopped.code == STOPPED and "started again" not in stopped.err
    assert stopped.of("stopped") == [10, 10] and stopped.of("seen") == [10, 10]


OF_ITS_OWN = """
import os
import numpy as np
import keras
import tfhvd.keras as hvd
os.environ["TFHVD_CHECK_SYNC"] = "off"
hvd.init()
if hvd.rank() == 1:
    hvd.request_stop()
hvd.allreduce(1.0)
own = keras.Sequential([keras.layers.Dense(1)])
own.compile("sgd", "mse")
x = np.ones((8, 4), "float32")
own.fit(x, x[:, :1], epochs=2 + hvd.rank(), verbose=0)
assert hvd.should_stop()
print("trained\\n", end="", flush=True)
raise hvd.StopRequested
"""


def test_a_model_that_each_rank_trains_by_itself_is_trained_to_its_end(tmp_path):
    """The other ranks could not stop after the same step."""
    path = script(tmp_path, OF_ITS_OWN)
    result = launch(*JOB, sys.executable, path, timeout=60)
    assert result.code == STOPPED and result.out == "trained\n" * 2, result.err
    assert wait_until_gone(str(path)) == []


def test_without_a_checkpoint_sigterm_ends_a_rank_as_ever(tmp_path, program):
    ended = run(program, "", "fit", act=sends("launcher", 0.1))
    assert ended.code == 128 + signal.SIGTERM and ended.of("stopped") == []


def test_in_a_job_of_one_rank(tmp_path, program):
    alone = ("--transport", "tcp", "--no-prefix", "-np", 1)
    folder = str(tmp_path / "run")
    with started(*alone, sys.executable, program, folder, "fit") as process:
        json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == STOPPED and json.loads(out)["stopped"] > 0
    assert wait_until_gone(str(program)) == []


def test_a_command_says_that_a_host_is_about_to_be_taken_away(tmp_path, program):
    folder = tmp_path / "run"
    words = ("--preemption-command", f"test -e {tmp_path}/notice", "--preemption-interval", 0.1)

    def act(launcher: int, ranks: list[int]) -> None:
        (tmp_path / "notice").touch()

    stopped = run(program, str(folder), "fit", (*words, *JOB), act)
    assert stopped.code == STOPPED, stopped.err
    assert len(stopped.of("stopped")) == 2 and len(set(stopped.of("stopped"))) == 1
    assert stopped.err.count("--preemption-command says that host") == 1
    check_goes_on(program, str(folder), "fit")


def test_under_mpirun_alone(tmp_path, program):
    """The exit code is mpirun's, which has that of a rank."""
    folder = tmp_path / "run"

    def stop(_: mpi.Processes) -> None:
        pids = [Path(f"{folder}.{rank}") for rank in range(2)]
        mpi.wait_for(lambda: all(file.exists() and file.read_text() for file in pids))
        os.kill(int(pids[0].read_text()), signal.SIGTERM)

    job = mpi.run_ranks(2, [str(program), str(folder), "fit"], while_running=stop, fork=True)
    assert job.code == STOPPED and job.left == [], job
    stopped = [json.loads(rank.out.splitlines()[-1])["stopped"] for rank in job.ranks]
    assert stopped[0] == stopped[1] > 0, job
    check_goes_on(program, str(folder), "fit")
