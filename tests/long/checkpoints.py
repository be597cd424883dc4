"""Kills processes while they save checkpoints, and flips bits of checkpoints.

    python tests/long/checkpoints.py [--kills N] [--flips N] [--seed S]

N times (10,000 unless said otherwise) a process saves a checkpoint of two ranks, which are threads,
and ends before, in the middle of, or after a write, an fsync, a rename or a removal that is drawn.
After each, all checkpoints that are there must be whole, none older than the last that was
announced. Then a bit of a file that is drawn is flipped (1,000 times): the file must be named, and
the checkpoint before be the newest. Ends with 1 at the first that is not so; prints the seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "checkpoint")]

import kills  # noqa: E402  (after its folder is on the path)

from tfhvd.checkpoint.errors import DamagedError  # noqa: E402
from tfhvd.checkpoint.store import Store  # noqa: E402

MOMENTS = 90  # more than a save of two ranks has


def kill(folder: Path, draw: random.Random, count: int) -> int:
    """Kills so many processes; returns how many have ended before they were done."""
    last = ended = 0
    for step in range(1, count + 1):
        announced, early = kills.killed(folder, draw.randrange(MOMENTS), step, keep=2)
        ended += early
        store = Store(folder)
        for other in store.steps():
            kills.assert_whole(store, other)
        newest = store.newest(lambda text: None) or 0
        assert newest >= (step if announced else last), f"step {newest} after step {last}"
        last = newest
    return ended


def flip(folder: Path, draw: random.Random, count: int) -> None:
    """Flips so many bits, one after the other."""
    store = Store(folder)
    for step in (1, 2):
        assert kills.save(store, step, f"{step:08x}").error is None
    for _ in range(count):
        path = draw.choice(sorted(store.folder(2).iterdir()))
        whole = path.read_bytes()
        changed = bytearray(whole)
        changed[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        said: list[str] = []
        assert store.newest(said.append) == 1, "a damaged one passes for whole"
        assert str(path) in said[0], f"{said[0]} does not name {path}"
        path.write_bytes(whole)
        try:
            store.verify(2)
        except DamagedError as error:
            raise AssertionError(f"whole again, and {error}") from error


def main() -> int:
    """Does it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--flips", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    options = parser.parse_args()
    draw, begin = random.Random(options.seed), time.monotonic()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        ended = kill(Path(name, "kills"), draw, options.kills)
        print(f"{options.kills} saves, {ended} of them killed: all ok", flush=True)
        flip(Path(name, "flips"), draw, options.flips)
        print(f"{options.flips} flipped bits: each was named", flush=True)
    print(f"{time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
