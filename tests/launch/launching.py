"""Starts tfhvdrun in a process of its own, and looks for what it leaves behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import fork_server
from children import environment

# The head of scripts whose first argument says which Keras.
EITHER_KERAS = """
if sys.argv[1] == "tf_keras":
    import tf_keras as keras
else:
    import keras
"""
# A model whose gradients a tape reduces, after TensorFlow, a Keras and its tfhvd are imported.
TAPE_MODEL = """
class OfATape(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}
"""
TFHVDRUN = [sys.executable, "-m", "tfhvd.launch"]
# What starts it: another one within tests that use `preloaded_jobs`.
Popen: Callable[..., subprocess.Popen[str]] = subprocess.Popen


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def own_lines(self) -> list[str]:
        """What stderr says from tfhvdrun's first word on the failure, at the end of the job."""
        at_once = re.compile("; the job ends$|: kill -CONT [0-9]+$")
        lines = [line for line in self.err.splitlines() if not at_once.search(line)]
        first = next((at for at, line in enumerate(lines) if line.startswith("tfhvdrun:")), None)
        return [] if first is None else lines[first:]


@contextmanager
def started(
    *words: object, cwd: Path | None = None, limit: float = 300, **env: str
) -> Iterator[subprocess.Popen[str]]:
    """A running tfhvdrun, killed with all its session if the test does not end it.

    Args:
        words: its options and command.
        cwd: its folder.
        limit: seconds after which it is killed, so that no test reads its output for ever.
        env: added to its environment.
    """
    process = Popen(
        [*TFHVDRUN, *map(str, words)],
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=fork_server.heed_signals,
    )
    in_vain = threading.Timer(limit, process.kill)
    in_vain.start()
    try:
        yield process
    finally:
        in_vain.cancel()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()


def launch(*words: object, timeout: float = 60, cwd: Path | None = None, **env: str) -> Outcome:
    """Runs tfhvdrun to its end; where it comes to none in time, the error has all that it said."""
    with started(*words, cwd=cwd, limit=timeout + 60, **env) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as late:
            said = [(text or b"").decode(errors="replace") for text in (late.stdout, late.stderr)]
            raise AssertionError("\n".join([f"not over after {timeout:g} s:", *said])) from None
        return Outcome(process.returncode, out, err)


def read_until(stream: IO[str] | None, pattern: str) -> list[str]:
    """Reads lines until one matches, which is the last one that is returned."""
    assert stream is not None
    found = []
    for line in stream:
        found.append(line)
        if re.search(pattern, line):
            return found
    raise AssertionError(f"no {pattern} in:\n{''.join(found)}")


def grown(folder: Path, text: str, *words: object, timeout: float = 150) -> Outcome:
    """Runs a script on two ranks, to which a third one comes; all end well, and none is left.

    Args:
        folder: for the script.
        text: of it, as for `script`.
        words: its arguments.
        timeout: in seconds.
    """
    path = script(folder, text)
    job = ("-np", 2, "--max-np", 3, "--no-prefix", sys.executable, path, *words)
    result = launch(*job, timeout=timeout)
    assert result.code == 0, result.err
    assert wait_until_gone(str(path)) == []
    return result


def script(folder: Path, text: str) -> Path:
    """A Python script whose path names it among all processes of this machine."""
    path = folder / "script.py"
    path.write_text("import os, signal, subprocess, sys, time\n" + text)
    return path


def processes_naming(text: str) -> list[int]:
    """Processes of this machine with ``text`` on their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in line and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def wait_until_gone(text: str, seconds: float = 10) -> list[int]:
    """Waits for those processes to end; returns the ones that did not."""
    deadline = time.monotonic() + seconds
    while (left := processes_naming(text)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
