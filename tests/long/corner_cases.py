"""Trains every corner in every way, on data that are drawn anew, beside one rank.

    python tests/long/corner_cases.py [--ranks N ...] [--only WORDS] [--seed S]

The rows are those of tests/keras/corners.py: each in `fit` of both Kerases and in a loop, with
equal and unequal batches, as a graph and compiled. One job for each number of ranks. Prints a line
for each case, "ok" or what differs; ends with 1 where anything did. A case takes about 5 s of two
quiet cores.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "tests"), str(ROOT / "tests" / "keras")]

import children  # noqa: E402  (after its folder is on the path)


def on_a_rank(options: argparse.Namespace) -> int:
    """Trains all cases; returns how many are wrong."""
    import corners  # in keras; it needs TensorFlow

    import tfhvd.keras as hvd

    hvd.init()
    wrong = 0
    for name, corner in corners.CORNERS.items():
        for case in corners.cases(corner):
            label = f"{name}: {case}"
            if options.only not in label:
                continue
            told = ""
            try:
                corners.check(corner, case, options.seed)
            except Exception:
                told = traceback.format_exc()
            of_ranks = [text for text in hvd.allgather_object(told) if text]
            wrong += bool(of_ranks)
            if hvd.rank() == 0:
                print(f"{hvd.size()} ranks, {label}:", *(of_ranks[:1] or ["ok"]), flush=True)
    return min(wrong, 1)


def main() -> int:
    """Runs the jobs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3], metavar="N")
    parser.add_argument("--only", default="", metavar="WORDS", help="of the cases' names")
    parser.add_argument("--seed", type=int, help="printed where not given")
    parser.add_argument("--on-a-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.on_a_rank:
        return on_a_rank(options)
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    codes = []
    for ranks in options.ranks:
        launch = [sys.executable, "-m", "tfhvd.launch", "-np", str(ranks), "--no-prefix"]
        own = [__file__, "--on-a-rank", "--seed", str(seed), "--only", options.only]
        environment = children.environment(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="2")
        job = subprocess.run([*launch, sys.executable, *own], env=environment, check=False)
        codes.append(job.returncode)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
