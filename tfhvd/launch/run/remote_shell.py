"""The program that mpirun calls instead of ssh, on the machines of a cluster: see `node`.

mpirun calls `python -m tfhvd.launch.run.remote_shell [OPTION ...] HOST WORD ...`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfhvd.launch.run.node import Node, execute

# Only this program has these variables, not the ranks: the token allows a process to run anything.
_NODES = "TFHVDRUN_NODES"
_TOKEN = "TFHVDRUN_NODES_TOKEN"


@contextlib.contextmanager
def program(nodes: Sequence[Node], token: str) -> Iterator[Path]:
    """Makes a program that runs commands on nodes, as ssh does. Only its user can read it."""
    variables = {_NODES: json.dumps([node.to_json() for node in nodes]), _TOKEN: token}
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    call = f"{given} exec {shlex.quote(sys.executable)} -m {__name__}"
    with tempfile.TemporaryDirectory(prefix="tfhvd-nodes-") as folder:  # of mode 0700
        path = Path(folder) / "remote_shell"
        path.write_text(f'#!/bin/sh\n{call} "$@"\n', encoding="utf-8")
        path.chmod(0o700)
        yield path


def main(argv: Sequence[str]) -> int:
    """Runs the command in `argv` on the host in `argv`; returns the command's exit code."""
    words = list(argv)
    while words and words[0].startswith("-"):
        words.pop(0)  # mpirun adds options for ssh
    if not words:
        print("there is no host to run a command on: HOST WORD ...", file=sys.stderr)
        return 255
    host, command = words[0], " ".join(words[1:])  # as ssh does
    nodes = {node.host: node for node in map(Node.from_json, json.loads(os.environ[_NODES]))}
    if host not in nodes:
        print(f"host {host} is not one of this job's: {', '.join(nodes)}", file=sys.stderr)
        return 255
    try:
        return execute(nodes[host], os.environ[_TOKEN], command)
    except OSError as error:
        print(f"the server of tfhvd on {host} does not answer: {error}", file=sys.stderr)
        return 255  # as ssh does


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
