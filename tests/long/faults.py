"""Runs every fault of `tests/fault/faults.py`, then faults of random ranks at random times.

    python tests/long/faults.py [--random N] [--seed S] [--only TEXT] [--sample N]
                                [--from NUMBER]

Prints a line for each, and ends with 1 where a rank did not end in time, or did not name the rank
that failed. Takes about 20 s for each on two quiet cores.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "fault")]

import choice  # noqa: E402
import faults  # noqa: E402
import network  # noqa: E402


def at_random(count: int, seed: int) -> list[faults.Fault]:
    """Draws faults: any deed, of any rank of any job, at any time of its first seconds."""
    source = random.Random(seed)
    layouts = {**faults.LAYOUTS, **(faults.NETWORKS if network.available() else {})}
    found = []
    for _ in range(count):
        layout = source.choice(list(layouts))
        victim = source.randrange(len(layouts[layout]))
        of_hosts = [] if layout in faults.LAYOUTS else [faults.CUT_OFF]
        deed = source.choice([*faults.DEEDS, *of_hosts])
        mode = source.choice([*faults.MODES, faults.UNCAUGHT])
        found.append(faults.Fault(layout, deed, victim, mode, after=source.uniform(0.0, 3.0)))
    return found


def main() -> int:
    """Runs them one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--random", type=int, default=200, metavar="N", help="how many at random")
    parser.add_argument("--seed", type=int, default=None, help="of these; printed where not given")
    choice.add_options(parser)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    if not network.available():
        print("left out: hosts with networks of their own, which only root can make", flush=True)
    chosen = faults.everything() + at_random(options.random, seed)
    chosen = [fault for fault in chosen if options.only in str(fault)]
    if options.sample is not None:
        chosen = random.Random(seed).sample(chosen, min(options.sample, len(chosen)))
    failed = 0
    for number, fault in list(enumerate(chosen, 1))[options.first - 1 :]:
        began = time.monotonic()
        try:
            faults.run(fault)
            said = "ok"
        except AssertionError as error:
            said = str(error)
        failed += said != "ok"
        seconds = time.monotonic() - began
        print(f"{number}/{len(chosen)} {fault} ({seconds:.0f} s): {said}", flush=True)
    tried = len(chosen) - options.first + 1
    print(f"{tried - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
