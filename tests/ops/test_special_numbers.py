"""Denormal numbers, NaN with payloads, infinities and zeros of both signs, as IEEE 754 has them.

TensorFlow's threads flush denormal numbers to zero, and the engine's thread does not; of two NaN a
processor keeps one. The ranks are to have equal bits all the same, whatever carries the tensors.
"""

from __future__ import annotations

import mpi
import pytest
from variants import also

pytestmark = [pytest.mark.thorough, pytest.mark.variant]

PROGRAM = """
import hashlib
import numpy as np, tensorflow as tf, tfhvd as hvd

hvd.init()
BITS = {tf.float16: np.uint16, tf.bfloat16: np.uint16, tf.float32: np.uint32, tf.float64: np.uint64}
FRACTION = {tf.float16: 10, tf.bfloat16: 7, tf.float32: 23, tf.float64: 52}
OPS = {hvd.Sum: np.add, hvd.Min: np.minimum, hvd.Max: np.maximum, hvd.Product: np.multiply}

def drawn(dtype, count, rank):
    # A third denormal, then zeros, infinities, ones, and NaN that says whose it is.
    random = np.random.default_rng([rank, count])
    fraction, bits = FRACTION[dtype], BITS[dtype]
    sign = 1 << (8 * dtype.size - 1)
    infinity = sign - (1 << fraction)
    nan = infinity | 1 << (fraction - 1) | rank + 1
    kinds = np.array([1, 2, 3, 0, infinity, infinity // 2, nan])
    low = random.integers(0, 1 << (fraction - 2), count) * (random.integers(0, 2, count) > 0)
    picked = random.integers(0, 7, count)
    values = kinds.astype(np.uint64)[picked] + np.where(picked < 3, low, 0).astype(np.uint64)
    values += np.where(random.integers(0, 2, count) > 0, np.uint64(sign), np.uint64(0))
    return values.astype(bits).view(dtype.as_numpy_dtype)

@tf.function
def in_a_graph(tensor, op):
    return hvd.allreduce(tensor, op=op)

digest = hashlib.sha256()
for dtype, bits in BITS.items():
    for count in (1, 7, 1031, 70_001):
        of_ranks = [drawn(dtype, count, rank) for rank in range(hvd.size())]
        for op, reduce in OPS.items():
            expected = of_ranks[0].astype(np.float64 if dtype == tf.float64 else np.float32)
            with np.errstate(all="ignore"):
                for other in of_ranks[1:]:
                    expected = reduce(expected, other.astype(expected.dtype))
                expected = expected.astype(dtype.as_numpy_dtype)
            for call in (in_a_graph, lambda tensor, op: hvd.allreduce(tensor, op=op)):
                found = call(tf.constant(of_ranks[hvd.rank()]), op).numpy()
                digest.update(found.tobytes())
                is_nan = np.isnan(expected.astype(np.float64))
                assert (np.isnan(found.astype(np.float64)) == is_nan).all(), (dtype, count, op)
                if op in (hvd.Min, hvd.Max):  # of zeros of both signs numpy takes either
                    is_nan |= expected == 0
                wrong = (found.view(bits) != expected.view(bits)) & ~is_nan
                assert not wrong.any(), (dtype, count, op, found[wrong][:3], expected[wrong][:3])
print(digest.hexdigest())
"""


@pytest.mark.parametrize(("means", "size"), [("shm", 2), ("mpi", 2), also("mpi", 3)])
def test_ranks_have_the_same_bits(means: str, size: int):
    job = mpi.run_ranks(size, PROGRAM, env={"TFHVD_CPU_OPERATIONS": means}, timeout=180)
    assert job.code == 0, job
    assert len({rank.out for rank in job.ranks}) == 1, job
    assert not job.left
