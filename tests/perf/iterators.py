"""How long does the end of an iterator of tf.data keep who drops it, with tfhvd and without?

    python tests/perf/iterators.py [--times N] [--ranks N]

Two jobs of the same program, one after the other: each rank uses an iterator for a second, as for
an epoch, drops it, and begins anew. Prints how many of them kept their rank for longer than 50 ms,
and the longest time.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import children  # noqa: E402  (after its folder is on the path)

PROGRAM = """
import sys, time
import tensorflow as tf
if sys.argv[1] == "tfhvd":
    import tfhvd as hvd
    hvd.init()
    hvd.barrier()
x = tf.zeros([1437, 64])

def batch(number):
    return tf.gather(x, tf.random.shuffle(tf.range(1437))[:32])

data = tf.data.Dataset.range(10**9).map(batch, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
for _ in range(int(sys.argv[2])):
    iterator, over = iter(data), time.monotonic() + 1.0
    while time.monotonic() < over:
        next(iterator)
        time.sleep(0.01)
    begun = time.monotonic()
    del iterator
    print(f"took {time.monotonic() - begun:.6f}\\n", end="", flush=True)
"""


def main() -> int:
    """Runs both jobs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=50, metavar="N", help="iterators (50)")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="(2)")
    options = parser.parse_args()
    for way in ("tfhvd", "TensorFlow alone"):
        words = [sys.executable, "-m", "tfhvd.launch", "-np", str(options.ranks)]
        done = subprocess.run(
            [*words, sys.executable, "-c", PROGRAM, way, str(options.times)],
            env=children.environment(TF_CPP_MIN_LOG_LEVEL="2"),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(done.stderr[-4000:], file=sys.stderr)
            return 1
        took = [float(found) for found in re.findall(r"took (\S+)", done.stdout)]
        long = sum(one > 0.05 for one in took)
        print(f"{way}: {long} of {len(took)} over 50 ms, {1e3 * max(took):.1f} ms at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
