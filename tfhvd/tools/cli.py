"""The command ``tfhvd``: each of its words is a module of this folder.

Such a module has ``add_arguments(parser)`` and ``run(options) -> int``, the exit code. It is
imported only when its word is asked for, or help: some need TensorFlow, which takes seconds.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from tfhvd._version import __version__
from tfhvd.launch.errors import UsageError

# Word -> what it does, in one line of help. Its module has the same name.
COMMANDS: dict[str, str] = {
    "why": "why a running job does not continue",
    "dump": "what the ranks of a running job wait for, and what they did last",
    "timeline": "lays the ranks' timelines together on one clock, or says where their time went",
    "checkpoint": "lists, shows and verifies the checkpoints of a folder",
    "doctor": "looks at the machines of a job before it runs: each check passed, warned or failed",
    "env": "prints what a report of a bug needs: versions, build, settings, machine; no secrets",
}


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code; 2: wrong usage."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="tfhvd", description="Says what a job of tfhvd does, and why it does not."
    )
    parser.add_argument("--version", action="version", version=f"tfhvd {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name in words[:1]:
            importlib.import_module(f"tfhvd.tools.{name}").add_arguments(subparser)
    options = parser.parse_args(words)
    try:
        return int(importlib.import_module(f"tfhvd.tools.{options.command}").run(options))
    except UsageError as error:
        print(f"tfhvd {options.command}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
