"""Installs the binary wheel for aarch64 under QEMU, and computes with it on one and two ranks.

    sudo --preserve-env python tests/long/emulated.py [--folder FOLDER] [--only TEXT] WHEEL

Needs root, for debootstrap, qemu-user-static, and access to the packages of Debian and of Python.
Nothing is set on the machine: Debian's Python of that processor is a shell script that starts QEMU.
So whatever else a program starts is this machine's own. Takes about 20 minutes, most of them to
import TensorFlow, and 3 GiB of disk. `--folder` keeps what is fetched.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import commands

ROOT = Path(__file__).resolve().parents[2]
# Debian's release, and the Python that it has.
RELEASE, PYTHON = "bookworm", "3.11"
PACKAGES = (f"python{PYTHON}", "libstdc++6", "libgomp1")
TENSORFLOW = "tensorflow==2.21.*"
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64", "any")
LIMIT = 1200  # seconds for a command

COLLECTIVES = """
import numpy as np
import tensorflow as tf
import tfhvd as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
for dtype in (tf.float32, tf.float16, tf.bfloat16, tf.int64):
    for length in (1, 1000, 300000):
        got = hvd.allreduce(tf.cast(tf.fill([length], rank + 1), dtype), op=hvd.Sum)
        assert np.all(got.numpy() == size * (size + 1) // 2), (dtype, length)
assert hvd.allgather(tf.fill([rank + 1, 2], rank)).shape == (size * (size + 1) // 2, 2)
assert hvd.broadcast(tf.constant(rank), root_rank=size - 1).numpy() == size - 1
grouped = hvd.grouped_allreduce([tf.ones([n]) * rank for n in range(1, 9)], op=hvd.Sum)
assert all(np.all(part.numpy() == size * (size - 1) // 2) for part in grouped)
x = tf.Variable(float(rank))
with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
    y = x * x
assert tape.gradient(y, x).numpy() == size - 1
print("collectives: rank", rank, "of", size)
"""
COMPILED = """
import tensorflow as tf
import tfhvd as hvd

hvd.init()

@tf.function(jit_compile=True)
def total(x):
    return hvd.allreduce(2 * x, op=hvd.Sum) + 1

expected = hvd.size() * (hvd.size() + 1) + 1
assert total(tf.fill([1000], float(hvd.rank() + 1))).numpy().tolist() == [expected] * 1000
print("compiled: rank", hvd.rank(), "of", hvd.size())
"""
# What the launcher gives the ranks of one host, as if they were on several.
OVER_TCP = {"TFHVD_CPU_OPERATIONS": "mpi"}
TWO = ["--transport", "tcp", "-np", "2"]
# By title: the settings, the words of tfhvdrun, and what ranks run.
CASES = {
    "the build": ({}, ["--check-build"], None),
    "collectives, 1 rank": ({}, ["-np", "1"], COLLECTIVES),
    "collectives, 2 ranks, shared memory": ({}, TWO, COLLECTIVES),
    "collectives, 2 ranks, TCP": (OVER_TCP, TWO, COLLECTIVES),
    "a compiled function, 2 ranks": ({}, TWO, COMPILED),
    "examples/keras_digits.py, 2 ranks": ({}, TWO, "examples/keras_digits.py"),
}


def do(*command: str | Path) -> None:
    """Runs a command that must do."""
    subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, check=True)


def make_python(root: Path) -> Path:
    """Unpacks Debian's Python for aarch64, and returns a script that runs it under QEMU."""
    folder = root / "usr" / "bin"
    python, program = folder / f"python{PYTHON}", folder / f"python{PYTHON}.elf"
    if not program.exists():
        own = ["--arch=arm64", "--foreign", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        do("debootstrap", *own, RELEASE, root)
        for package in (root / "var" / "cache" / "apt" / "archives").glob("*.deb"):
            do("dpkg-deb", "-x", package, root)
        python.rename(program)
    # Named by $0, it finds the environment that the script was called in.
    start = f'exec qemu-aarch64-static -L "{root}" -0 "$0" "{program}" "$@"'
    python.write_text(f"#!/bin/sh\n{start}\n", encoding="utf-8")
    python.chmod(0o755)
    return python


def make_environment(folder: Path, python: Path, wheel: Path) -> Path:
    """Makes an environment with TensorFlow and the wheel; returns its programs' folder."""
    packages = folder / "venv" / "lib" / f"python{PYTHON}" / "site-packages"
    programs = folder / "venv" / "bin"
    do(python, "-m", "venv", "--without-pip", folder / "venv")
    if not (packages / "tensorflow").is_dir():
        platforms = [f"--platform={name}" for name in PLATFORMS]
        command = [sys.executable, "-m", "pip", "install", "-q", f"--target={packages}", *platforms]
        command += ["--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp"]
        do(*command, TENSORFLOW, "scikit-learn", "cloudpickle", "pip")
    # By that Python's own pip, which looks at the wheel's name.
    pip = [programs / "python", "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    do(*pip, "--force-reinstall", wheel)
    return programs


def run_case(title: str, programs: Path, folder: Path) -> str:
    """Returns what a case printed.

    Raises:
        subprocess.CalledProcessError: It failed.
        subprocess.TimeoutExpired: It took longer than LIMIT.
    """
    settings, words, program = CASES[title]
    command = [str(programs / "python"), str(programs / "tfhvdrun"), *words]
    if program is not None:
        is_file = program.endswith(".py")
        command += [str(programs / "python"), *([] if is_file else ["-c"])]
        command.append(str(ROOT / program) if is_file else program)
    env = {**os.environ, **settings, "PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)}
    # Those of the environment that this script runs in.
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        env.pop(name, None)
    done = commands.run(command, env, LIMIT, folder)
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, command[:4], done.stdout)
    return done.stdout


def main() -> int:
    """Installs the wheel, and runs the cases one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--folder", type=Path, help="where what is fetched is kept")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text")
    options = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory(prefix="tfhvd-emulated-") as own:
        folder = (options.folder or Path(own)).resolve()
        python = make_python(folder / "root")
        programs = make_environment(folder, python, options.wheel.resolve())
        print(f"{datetime.date.today()}: {options.wheel.name} is installed", flush=True)
        chosen = [title for title in CASES if options.only in title]
        for title in chosen:
            began = time.monotonic()
            try:
                lines = run_case(title, programs, Path(own)).splitlines()
                how = "passed"
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                failed.append(title)
                lines, how = str(error.output or "").splitlines(), f"failed: {error}"
            print("\n".join(lines[-60:]))
            print(f"{title}: {how} in {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
