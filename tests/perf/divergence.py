"""What it costs to compare the ranks' weights: `tfhvdrun -np 2 python tests/perf/divergence.py`.

Variables of the number and total size that ResNet-50 has: 161, of 25.6 million float32. The main
thread takes fingerprints; a thread of its own waits for the other ranks. Rank 0 prints medians.
"""

from __future__ import annotations

import statistics
import time

import tensorflow as tf

import tfhvd as hvd
from tfhvd.replicas import Comparison


def main() -> None:
    hvd.init()
    sizes = [25_600_000 // 54] * 54 + [512] * 107
    variables = [tf.Variable(tf.random.stateless_normal([size], [1, 2])) for size in sizes]
    begins, waits = [], []
    for _ in range(20):
        hvd.barrier()
        began = time.perf_counter()
        comparison = Comparison(variables, "", hvd.global_process_set)
        begun = time.perf_counter()
        names = comparison.finish("raise")
        waits.append(time.perf_counter() - begun)
        begins.append(begun - began)
        assert not names
    if hvd.rank() == 0:
        print(f"fingerprints: {1e3 * statistics.median(begins):.1f} ms")
        print(f"collective, beside the next step: {1e3 * statistics.median(waits):.1f} ms")


if __name__ == "__main__":
    main()
