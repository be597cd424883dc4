"""hvd.barrier: nobody leaves before everybody has come."""

import os
import time
from pathlib import Path

import pytest
import tensorflow as tf
from modes import in_both_modes, run

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2, 4)


@in_both_modes
def test_nobody_leaves_before_everybody_has_come(mode):
    folder = Path(os.environ["TFHVD_TEST_OUTPUT"])
    for late in range(hvd.size()):
        if hvd.rank() == late:
            time.sleep(0.05)
        (folder / f"{mode}.{late}.{hvd.rank()}").touch()
        run(mode, lambda: hvd.barrier())
        came = [r for r in range(hvd.size()) if (folder / f"{mode}.{late}.{r}").exists()]
        assert came == list(range(hvd.size()))


def test_takes_its_place_among_the_stateful_operations():
    @tf.function
    def f():
        tf.print("before", output_stream="file:///dev/null")
        hvd.barrier()
        tf.print("after", output_stream="file:///dev/null")

    operations = f.get_concrete_function().graph.get_operations()
    [barrier] = [o for o in operations if o.type == "TfhvdBarrier"]
    prints = [o for o in operations if o.type == "PrintV2"]
    assert prints[0] in barrier.control_inputs
    assert barrier in prints[1].control_inputs


def test_is_nothing_when_eager():
    assert hvd.barrier() is None
