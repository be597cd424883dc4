"""Ends ranks of elastic jobs at every step of the protocol: do the others go on, alike?

    python tests/long/failpoints.py [--sample N] [--seed S] [--only TEXT] [--from NUMBER]
                                    [--at-once N] [--exec]

Each job has ranks that are killed (SIGKILL), or stopped, when they come to one of the places of
cc/base/failpoints.h: rank 0, the first one of a host, the last one, two at once, while the others
recover from an earlier loss, or while a rank joins. Every survivor must make all steps, with as
many updates, and weights equal to the bit; nothing may be left; where the job is to end, it ends in
time, and says why. Prints a line for each, and ends with 1 where anything was wrong.

Every process of a job is a fork of one that has TensorFlow loaded (tests/preloaded.py): a
job takes 2 s on two quiet cores. `--exec` starts Python anew for each, as users do: 10 s.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "launch")]

import choice  # noqa: E402
import failpoints  # noqa: E402
import preloaded  # noqa: E402

from tfhvd.system import subreaper  # noqa: E402


def attempt(case: failpoints.Case) -> str:
    """Runs one; returns "ok" or what is wrong."""
    try:
        failpoints.run(case)
        left = preloaded.left_behind()
        return f"WRONG: processes are left: {left}" if left else "ok"
    except AssertionError as error:
        return f"WRONG: {error}"


def run(cases: Sequence[tuple[int, failpoints.Case]], of: int) -> int:
    """Runs some, one after the other; returns how many went wrong."""
    failed = 0
    for number, case in cases:
        began = time.monotonic()
        said = attempt(case)
        failed += said != "ok"
        took = time.monotonic() - began
        print(f"{number}/{of} {case} ({took:.0f} s): {said}\n", end="", flush=True)
    return failed


def run_at_once(cases: Sequence[tuple[int, failpoints.Case]], of: int, at_once: int) -> int:
    """Runs them in so many processes of one thread each; returns how many went wrong."""
    processes = []
    for first in range(at_once):
        pid = os.fork()
        if pid == 0:
            subreaper.adopt()
            os._exit(min(run(cases[first::at_once], of), 255))
        processes.append(pid)
    # Below 0: a signal has ended it, which is no fewer that went wrong.
    return sum(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in processes)


def main() -> int:
    """Runs them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, help="of these; printed where not given")
    choice.add_options(parser)
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="side by side (1)")
    parser.add_argument("--exec", action="store_true", help="start Python as users do")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    chosen = [case for case in failpoints.everything() if options.only in str(case)]
    if options.sample is not None:
        chosen = failpoints.sample(chosen, options.sample, seed)
    cases = list(enumerate(chosen, 1))[options.first - 1 :]
    with preloaded.start_python_by_fork(not options.exec):
        failed = run_at_once(cases, len(chosen), options.at_once)
    print(f"{len(cases) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
