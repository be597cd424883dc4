"""Puts elastic jobs, whose ranks are threads, through losses and joins at random times.

    python tests/long/schedules.py [--count N] [--seed S] [--at-once K]

Of N seeds in a row (a million unless said otherwise) each is a job: ranks are lost one after the
other while it trains, or come and are lost in any order. The survivors must make all steps, with
the same sums, each of a set of ranks that there was. Ends with 1 at the first seed with which that
is not so. Takes about an hour on two quiet cores: the threads wait more than they compute.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "core_tests" / "elastic_schedules"
CHUNK = 1000  # seeds of one process
LIMIT = 600.0  # seconds for them


def run(first: int, count: int) -> str:
    """Runs some; returns what is wrong, "" where nothing is."""
    words = [str(PROGRAM), str(first), str(count)]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired as expired:
        return f"{' '.join(words)} has not ended within {LIMIT:g} s: {expired.stderr!r}"
    return "" if ran.returncode == 0 else f"{' '.join(words)}:\n{ran.stdout}{ran.stderr}"


def main() -> int:
    """Runs them in many processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--seed", type=int, help="the first one; printed where not given")
    parser.add_argument("--at-once", type=int, metavar="K", help="so many jobs side by side")
    options = parser.parse_args()
    subprocess.run([sys.executable, "setup.py", "-q", "build_core_tests"], cwd=ROOT, check=True)
    seed = options.seed if options.seed is not None else random.randrange(1 << 31)
    end = seed + options.count
    print(f"seeds {seed} to {end - 1}", flush=True)
    chunks = [(first, min(CHUNK, end - first)) for first in range(seed, end, CHUNK)]
    began, done = time.monotonic(), 0
    with ThreadPoolExecutor(options.at_once or 4 * (os.cpu_count() or 1)) as processes:
        for (_, count), wrong in zip(chunks, processes.map(run, *zip(*chunks))):
            if wrong:
                print(f"WRONG: {wrong}", flush=True)
                processes.shutdown(wait=False, cancel_futures=True)
                return 1
            before, done = done, done + count
            if 20 * before // options.count != 20 * done // options.count:
                minutes = (time.monotonic() - began) / 60
                print(f"{done} of {options.count} are ok, after {minutes:.1f} minutes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
