"""Starts the ranks of a job without an MPI, instead of mpirun: ``spawn.py SPEC``.

SPEC is JSON: {hosts: [{words, ranks}, ...], agent, names, folder, outlives}. On each other host a
second spawn.py starts the agents. `words` is the command that reaches the host, such as ssh, and
empty for the host of tfhvdrun. `names` are the variables that other hosts get, and `folder` is the
folder in which all processes run. Each spawn.py forwards signals. It ends when all processes that
it has started have ended, with the exit code of the first that failed. If a spawn.py is killed, its
agents notice the end of their parent. A spawn.py on another host also notices the end of its ssh,
and then ends its agents, unless the job `outlives` the host of tfhvdrun.

It is run by path with ``python -E -S``, and imports the standard library alone.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not __package__:
    # Run by path: the names in this folder must not hide the standard library's.
    sys.path[:] = [*sys.path[1:], __file__.rsplit("/", 4)[0]]

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfhvd.protocol.variables import RANK

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def start(
    agent: Sequence[str], ranks: Sequence[int], environ: Mapping[str, str]
) -> list[subprocess.Popen[bytes]]:
    """Starts the agents of this host."""
    return [
        subprocess.Popen(list(agent), env={**environ, RANK: str(rank)}, stdin=subprocess.DEVNULL)
        for rank in ranks
    ]


def start_there(words: Sequence[str], spec: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    """Starts this program on another host. That program's stdin ends when this process ends."""
    remote = [sys.executable, "-E", "-S", str(Path(__file__).absolute()), "-"]
    process = subprocess.Popen(
        [*words, shlex.join(remote)], stdin=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # ssh prints the reason
        process.stdin.write(json.dumps(spec).encode() + b"\n")
        process.stdin.flush()
    return process


def main(argv: Sequence[str]) -> int:
    """Runs as above; ``-`` reads SPEC from stdin, which ends with the process that started us."""
    asked = argv[0] == "-"
    spec = json.loads(sys.stdin.readline() if asked else argv[0])
    environ = {**os.environ, **spec.get("environ", {})}
    os.chdir(spec["folder"])
    children: list[subprocess.Popen[bytes]] = []
    for host in spec["hosts"]:
        if host["words"]:
            there = {**spec, "hosts": [{"words": [], "ranks": host["ranks"]}]}
            there["environ"] = {n: environ[n] for n in spec["names"] if n in environ}
            children.append(start_there(host["words"], there))
        else:
            children += start(spec["agent"], host["ranks"], environ)

    def pass_on(number: int) -> None:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    for number in _PASSED_ON:
        signal.signal(number, lambda number, stack: pass_on(number))
    if asked and not spec["outlives"]:
        threading.Thread(target=_end_with_stdin, args=(pass_on,), daemon=True).start()
    codes = [child.wait() for child in children]
    failed = [code for code in codes if code != 0]
    return abs(failed[0]) if failed else 0


def _end_with_stdin(pass_on: Any) -> None:
    """Ends the agents when the process that started this one has ended."""
    select.select([sys.stdin], [], [])
    sys.stdin.buffer.raw.read(1)  # type: ignore[union-attr]
    pass_on(signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
