"""``tfhvd why`` of real jobs in which something was done on purpose."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import children
import network
import pytest
from variants import first_of

from tfhvd.tools import cli

TFHVD = [sys.executable, "-m", "tfhvd"]
PROGRAM = """
import os, signal, sys, time
import tfhvd as hvd
hvd.init()
if hvd.rank() == 0:
    hvd.add_process_set([0, 1])
"""
WITH_TENSORFLOW = """
import os, sys, time
import tensorflow as tf
import tfhvd as hvd
hvd.init()
rank = hvd.rank()
"""
# What is done on rank 1 -> the class of its verdict.
CASES = {
    "waits": PROGRAM + "time.sleep(60)\n",
    # A C function waits for ever, with the interpreter's lock.
    "held": PROGRAM
    + """
import ctypes
lock = ctypes.create_string_buffer(64)
if hvd.rank() == 1:
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(lock)
time.sleep(60)
""",
    "computing": PROGRAM + "while True: pass\n",
    "stopped": PROGRAM + "os.kill(os.getpid(), signal.SIGSTOP)\n",
}
MORE_CASES = {
    "different": WITH_TENSORFLOW + 'hvd.allreduce(tf.ones(1), name=f"of rank {rank}")\n',
    "input": WITH_TENSORFLOW
    + """
def elements():
    yield 1.0
    if rank == 1:
        time.sleep(60)
    yield 1.0
for x in tf.data.Dataset.from_generator(elements, tf.float32):
    hvd.allreduce(x, name="x")
""",
    "compiling": WITH_TENSORFLOW
    + """
@tf.function
def step(x):
    if rank == 1:
        time.sleep(60)
    return hvd.allreduce(x, name="x")
step(tf.ones(1))
""",
    "evaluating": WITH_TENSORFLOW
    + """
import keras
class Slow(keras.callbacks.Callback):
    def on_test_batch_end(self, batch, logs=None):
        time.sleep(0.02)
if rank == 1:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    data = tf.data.Dataset.from_tensors((tf.ones((1, 1)), tf.ones((1, 1)))).repeat(3000)
    model.evaluate(data, verbose=0, callbacks=[Slow()])
hvd.allreduce(tf.ones(1), name="x")
""",
    # Before the traceback is printed the iterator is freed, and that waits for its generator: tfhvd
    # has only those end elsewhere that are made after its import.
    "raised": """
import time
import tensorflow as tf
class Odd(Exception): pass
def elements():
    yield from (1.0, 2.0)
    time.sleep(60)
made = [iter(tf.data.Dataset.from_generator(elements, tf.float32).prefetch(2))]
import tfhvd as hvd
hvd.init()
for x in made.pop():
    hvd.allreduce(x, name="x")
    time.sleep(0.5)
    if hvd.rank() == 1:
        raise Odd()
""",
    # Both have left the job; their processes end once the generator has.
    "left": WITH_TENSORFLOW
    + """
def elements():
    yield from (1.0, 2.0)
    time.sleep(60)
for x in tf.data.Dataset.from_generator(elements, tf.float32).prefetch(2):
    hvd.allreduce(x, name="x")
    break
del x
""",
}


@contextmanager
def running(text: str, folder: Path) -> Iterator[int]:
    """A job of two ranks; gives the process that has started it."""
    (folder / "program.py").write_text(text)
    env = children.environment()
    words = [sys.executable, "-m", "tfhvd.launch", "-np", "2", sys.executable]
    with subprocess.Popen(
        [*words, str(folder / "program.py")],
        cwd=folder,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as job:
        try:
            yield job.pid
        finally:
            job.send_signal(signal.SIGTERM)  # a rank that is stopped ends by the second one
            time.sleep(0.1)
            job.send_signal(signal.SIGTERM)
            job.wait(20)


def why(pid: int, *, meeting: bool = False) -> tuple[int, dict]:
    """Asks until a rank is named that another one waits for.

    Both have begun then, and one has waited for the time of a look; or, if `meeting`, one has not.
    """
    deadline = time.monotonic() + 60
    while True:
        said = subprocess.run(
            [*TFHVD, "why", str(pid), "--seconds", "0.5", "--json"], capture_output=True, text=True
        )
        if said.returncode == 1:
            [answer] = json.loads(said.stdout)
            if answer["ranks"] and (answer["kind"] == "meeting") == meeting:
                return said.returncode, answer
        assert time.monotonic() < deadline, said
        time.sleep(0.1)


@pytest.mark.parametrize("case", first_of(CASES))
def test_the_odd_rank_is_named_with_its_class(case, tmp_path):
    with running(CASES[case], tmp_path) as pid:
        code, answer = why(pid)
    assert (code, answer["kind"]) == (1, case), answer
    assert answer["ranks"] == [1]


LATE_TO_INIT = """
import os, time
import tfhvd as hvd
from tfhvd.protocol.variables import rank_of
if rank_of(os.environ) == 1:
    time.sleep(60)
hvd.init()
"""


def test_a_rank_that_has_not_come_to_init_is_named(tmp_path):
    with running(LATE_TO_INIT, tmp_path) as pid:
        while (answer := why(pid, meeting=True)[1])["ranks"] != [1]:
            pass  # rank 0 has not come itself
    first, second = answer["lines"]
    assert first == "Ranks wait for others in hvd.init()."
    assert second.startswith("On this host rank 1 has not called it. It (process ")


@pytest.mark.thorough
@pytest.mark.parametrize("case", MORE_CASES)
def test_the_odd_rank_is_named_with_its_class_in_tensorflow(case, tmp_path):
    with running(MORE_CASES[case], tmp_path) as pid:
        _, answer = why(pid)
        while answer["kind"] != case:  # a rank may still be on its way there
            assert answer["kind"] in ("computing", "unknown", "waits", "held", "input"), answer
            _, answer = why(pid)
    assert answer["ranks"] == ([0, 1] if case in ("different", "left") else [1])
    if case != "different":
        assert "program.py:" in answer["lines"][1]


@pytest.mark.thorough
def test_ranks_of_other_hosts_are_seen_by_tfhvdrun(tmp_path):
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    (tmp_path / "program.py").write_text(CASES["waits"])
    env = children.environment()
    with network.hosts(2) as net:
        words = [sys.executable, "-m", "tfhvd.launch", *net.tfhvdrun(1)]
        command = [*net.run_on(0), *words, sys.executable, str(tmp_path / "program.py")]
        with subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as job:
            # As from the first host: with its network, but other numbers for its processes.
            ask = ["ip", "netns", "exec", net.names[0], *TFHVD]
            deadline = time.monotonic() + 60
            while True:
                said = subprocess.run(
                    [*ask, "why", str(job.pid), "--seconds", "0.5", "--json"],
                    capture_output=True,
                    text=True,
                )
                answers = json.loads(said.stdout) if said.returncode == 1 else []
                if any(each["ranks"] and each["kind"] != "meeting" for each in answers):
                    break  # both have begun
                assert time.monotonic() < deadline, said
            words = [*ask, "dump", str(job.pid)]
            dumped = subprocess.run(words, capture_output=True, text=True, check=True)
            job.kill()
        host = net.names[1]
    [answer] = answers
    assert (answer["kind"], answer["ranks"]) == ("waits", [1])
    assert answer["lines"][1].startswith(f"Rank 1 (host {host}, process ")
    assert dumped.stdout.startswith("job of 2 ranks\n")
    assert "rank 0 waits, rank 1 has not called it" in dumped.stdout


def test_wrong_words_are_refused(capsys):
    assert cli.main(["why", "--seconds", "0"]) == 2
    assert "expected is a number from 0.1 to 600" in capsys.readouterr().err
