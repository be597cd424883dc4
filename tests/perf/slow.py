"""Runs a command as on a machine that is slower, or busy with something else.

    python tests/perf/slow.py [--quota PERCENT] [--busy N] COMMAND ...

`--quota 100` gives all processes of the command together the time of one core, in slices of 10 ms,
as a container's limit does (needs root's right to make control groups). `--busy 2` lets two
processes compute beside it. Ends with the command's exit code; leaves neither group nor process.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import control_groups
from children import busy


@contextlib.contextmanager
def limited(percent: int | None) -> Iterator[list[str]]:
    """Makes a control group with a limit; gives the words that start a command in it."""
    if percent is None:
        yield []
        return
    with control_groups.words_in(*control_groups.quota(percent)) as words:
        yield words


def run(words: list[str]) -> int:
    """Runs a command to its end, or until SIGTERM, which is blocked; returns its exit code.

    A signal while the command is being started would leave it behind.
    """
    terms = {signal.SIGTERM}
    command = subprocess.Popen(
        words, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, terms)
    )
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, terms)
        return command.wait()
    finally:
        command.kill()  # does nothing where it has ended
        command.wait()


def main() -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quota", type=int, metavar="PERCENT", help="of one core, for all ranks")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="processes beside it")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    options = parser.parse_args()
    if not options.command:
        parser.error("there is no command to run")
    if options.quota is not None and options.quota < 1:
        parser.error(f"Received: --quota {options.quota}. Expected: percent of a core, 1 or more.")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGTERM, lambda number, stack: sys.exit(128 + number))
    try:
        with limited(options.quota) as words, busy(options.busy):
            return run([*words, *options.command])
    except control_groups.NoRightError as error:
        text = f"cannot limit the processor's time: {error}. Run as root, or use --busy alone"
        print(f"slow.py: {text}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
