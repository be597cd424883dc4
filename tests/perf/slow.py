"""Runs a command as on a machine that is slower, or busy with something else.

    python tests/perf/slow.py [--quota PERCENT] [--busy N] COMMAND ...

`--quota 100` gives all processes of the command together the time of one core, in slices of 10 ms,
as a container's limit does (needs root's right to make control groups). `--busy 2` lets two
processes compute beside it. Ends with the command's exit code; leaves neither group nor process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PERIOD = 10_000  # microseconds
ROOT = Path("/sys/fs/cgroup")


class NoRightError(Exception):
    """This process cannot make a control group; the text says what to do."""


@contextlib.contextmanager
def limited(percent: int | None) -> Iterator[list[str]]:
    """Makes a control group with a limit; gives the words that start a command in it."""
    if percent is None:
        yield []
        return
    name = f"tfhvd-slow-{os.getpid()}"
    old = (ROOT / "cpu").is_dir()  # version 1 of control groups
    group = ROOT / "cpu" / name if old else ROOT / name
    quota = percent * PERIOD // 100
    try:
        group.mkdir()
        if old:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{quota} {PERIOD}")
    except OSError as error:
        raise NoRightError(
            f"cannot limit the processor's time: {error}. Run as root, or use --busy alone"
        ) from error
    try:
        yield ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "limited"]
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Removes a group once its last process, which may still be ending, is gone."""
    until = time.monotonic() + 10
    while True:
        try:
            group.rmdir()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Lets so many processes compute, each in a session of its own, as other users' do."""
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    processes = [subprocess.Popen(spin, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


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
    except NoRightError as error:
        print(f"slow.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
