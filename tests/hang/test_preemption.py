"""How long a thread waits for a processor, from the kernel's files and for real."""

import os
import time

import pytest
from children import busy

from tfhvd.system import cpu_steal

STAT = """cpu  7871303 1576653 1184137 5208628 70438 0 30876 29119 0 0
cpu0 3935651 788326 592068 2604314 35219 0 15438 300 0 0
cpu1 3935652 788327 592069 2604314 35219 0 15438 100 0 0
ctxt 100
"""


def test_the_kernels_words():
    assert cpu_steal.waited("5000000 2500000 7\n") == pytest.approx(0.0025)
    assert cpu_steal.stolen(STAT, {0, 1}, 100) == pytest.approx(2.0)
    assert cpu_steal.stolen(STAT, {1}, 100) == pytest.approx(1.0)
    assert cpu_steal.stolen(STAT, {7}, 100) == 0.0
    with pytest.raises(ValueError, match="unpack"):
        cpu_steal.waited("")


def test_a_processor_with_another_process_on_it():
    """Both want one processor all the time: so each waits for about half of it."""
    if cpu_steal.seconds() == 0.0:
        pytest.skip("this kernel does not tell how long threads wait for a processor")
    before = os.sched_getaffinity(0)
    one = {min(before)}
    os.sched_setaffinity(0, one)
    try:
        with busy(1):
            began, waited = time.monotonic(), cpu_steal.seconds()
            while time.monotonic() < began + 0.5:
                pass
            waited = cpu_steal.seconds() - waited
    finally:
        os.sched_setaffinity(0, before)
    assert waited > 0.1
