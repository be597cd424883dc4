"""What the tests of Ray, Dask and Spark have every rank do."""

from __future__ import annotations

import os

MARK = "TFHVD_TEST_OF_CLUSTERS"  # a variable for the ranks


def work(offset: int, fails_on: int = -1) -> tuple[float, int, str]:
    """Returns the sum of all ranks with an offset each, the rank, and the variable."""
    import tensorflow as tf

    import tfhvd as hvd

    hvd.init()
    if hvd.rank() == fails_on:
        raise KeyError("no such sample")
    total = hvd.allreduce(tf.constant(float(hvd.rank() + offset)), op=hvd.Sum)
    return float(total), hvd.rank(), os.environ[MARK]
