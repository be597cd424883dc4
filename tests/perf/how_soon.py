"""How soon the terminal says what went wrong, in seconds.

    python tests/perf/how_soon.py [--times 5] [--only TEXT]

- A rank of a job that trains is killed: until tfhvdrun names it. Here, and on two hosts
  (namespaces, which root may make); rank 0 and the last one.
- `tfhvd doctor` on this machine, and on two hosts: until it has ended.
- `tfhvd doctor` with a host that refuses ssh, does not answer, has no Python or another tfhvd:
  until it has ended, with that host's line.

Prints the median and the most of each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "tools")]

import network  # noqa: E402  (after its folder is on the path)
from commands import environment  # noqa: E402

PROGRAM = """
import os, signal, sys, time
import tensorflow as tf
import tfhvd as hvd
hvd.init()
for step in range(1_000_000):
    hvd.allreduce(tf.ones(1000), name="x")
    if step == 200 and hvd.rank() == int(sys.argv[1]):
        open("killed", "w").write(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
"""
SSH = """#!/bin/bash
while [ "${1#-}" != "$1" ]; do case $1 in -o) shift ;; esac; shift; done
case $1 in
bare) exit 127 ;;
old) echo "tfhvd-doctor 0.0.1 /opt/tfhvd" ;;
silent) exec sleep 600 ;;
*) echo "ssh: connect to host $1 port 22: Connection refused" >&2; exit 255 ;;
esac
"""


@contextlib.contextmanager
def hosts(count: int) -> Iterator[network.Network | None]:
    """So many hosts; of one it is this machine."""
    if count == 1:
        yield None
        return
    with network.hosts(count) as net:
        yield net


def killed(ranks: int, victim: int, count: int) -> float:
    """Returns how long after a rank was killed tfhvdrun has named it."""
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(hosts(count))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfhvd-soon-")))
        (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
        words = [sys.executable, "-m", "tfhvd.launch"]
        if net is None:
            words += ["-np", str(ranks)]
        else:
            words = [*net.run_on(0), *words, *net.tfhvdrun(ranks // count)]
        job = stack.enter_context(
            subprocess.Popen(
                [*words, sys.executable, "train.py", str(victim)],
                cwd=folder,
                env=environment(TF_CPP_MIN_LOG_LEVEL="3"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        assert job.stderr is not None
        named = 0.0
        for line in job.stderr:
            if f"rank {victim} on host" in line and "killed by SIGKILL" in line and not named:
                named = time.time()
        assert named, "it was not named"
        return named - float((folder / "killed").read_text())


def doctor(*words: str, within: tuple[str, ...] = (), says: str = "", **env: str) -> float:
    """Returns how long it took; `says`: what it must have said."""
    began = time.monotonic()
    done = subprocess.run(
        [*within, sys.executable, "-m", "tfhvd", "doctor", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(**env),
        check=False,
    )
    assert says in done.stdout, done
    return time.monotonic() - began


def doctor_on_hosts() -> float:
    """Returns how long it took on two of them."""
    with network.hosts(2) as net:
        names = ",".join(f"{name}:1" for name in net.names)
        where = ["-H", names, "--remote-shell", str(net.agent), "--network-interfaces", "net0"]
        return doctor(*where, within=tuple(net.run_on(0)), says="on 2 hosts")


def cases(folder: Path) -> dict[str, Callable[[], float]]:
    """All that is timed."""
    (folder / "ssh").write_text(SSH, encoding="utf-8")
    (folder / "ssh").chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    found: dict[str, Callable[[], float]] = {
        "killed: rank 0 of 2": lambda: killed(2, 0, 1),
        "killed: rank 1 of 2": lambda: killed(2, 1, 1),
        "killed: rank 3 of 4": lambda: killed(4, 3, 1),
        "doctor: 2 ranks here": lambda: doctor("-np", "2", says="passed  meeting"),
        "doctor: ssh refused": lambda: doctor("-H", "off", PATH=path, says="Connection refused"),
        "doctor: no answer": lambda: doctor("-H", "silent", PATH=path, says="no answer"),
        "doctor: no Python": lambda: doctor("-H", "bare", PATH=path, says="host bare has no"),
        "doctor: other tfhvd": lambda: doctor("-H", "old", PATH=path, says="has tfhvd 0.0.1"),
    }
    if network.available():
        found["killed: rank 0 of 4 on 2 hosts"] = lambda: killed(4, 0, 2)
        found["killed: rank 3 of 4 on 2 hosts"] = lambda: killed(4, 3, 2)
        found["doctor: 2 hosts"] = doctor_on_hosts
    return found


def main() -> None:
    """Prints a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=5, metavar="N", help="how often each")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfhvd-ssh-") as folder:
        for name, case in cases(Path(folder)).items():
            if options.only in name:
                seconds = [case() for _ in range(options.times)]
                middle = statistics.median(seconds)
                print(f"{name:31} {middle:6.2f} s, at most {max(seconds):.2f} s", flush=True)


if __name__ == "__main__":
    main()
