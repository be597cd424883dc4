"""Ends ranks of elastic jobs at every step of the protocol: do the others go on, alike?

    python tests/long/failpoints.py [--sample N] [--seed S] [--only TEXT] [--from NUMBER]
                                    [--at-once N]

Each job has ranks that are killed (SIGKILL), or stopped, when they come to one of the places of
cc/base/failpoints.h: rank 0, the first one of a host, the last one, two at once, while the others
recover from an earlier loss, or while a rank joins. Every survivor must make all steps, with as
many updates, and weights equal to the bit; nothing may be left; where the job is to end, it ends in
time, and says why. Prints a line for each, and ends with 1 where anything was wrong. A job takes
about 10 s on two quiet cores.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "launch")]

import choice  # noqa: E402
import failpoints  # noqa: E402


def attempt(case: failpoints.Case) -> tuple[str, float]:
    """Runs one; returns "ok" or what is wrong, and how many seconds it took."""
    began = time.monotonic()
    try:
        failpoints.run(case)
        said = "ok"
    except AssertionError as error:
        said = f"WRONG: {error}"
    return said, time.monotonic() - began


def main() -> int:
    """Runs them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, help="of these; printed where not given")
    choice.add_options(parser)
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="side by side (1)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    chosen = [case for case in failpoints.everything() if options.only in str(case)]
    if options.sample is not None:
        chosen = failpoints.sample(chosen, options.sample, seed)
    cases = list(enumerate(chosen, 1))[options.first - 1 :]
    failed = 0
    with ThreadPoolExecutor(options.at_once) as pool:
        for (number, case), (said, seconds) in zip(
            cases, pool.map(attempt, [case for _, case in cases])
        ):
            failed += said != "ok"
            print(f"{number}/{len(chosen)} {case} ({seconds:.0f} s): {said}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
