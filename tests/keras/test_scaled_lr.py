"""hvd.scaled_lr: the rules, and what they count."""

import math

import keras
import pytest

import tfhvd
import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(1, 2, 4)


def test_rules():
    assert hvd.scaled_lr(0.1) == pytest.approx(0.1 * hvd.size())
    assert hvd.scaled_lr(0.1, "sqrt") == pytest.approx(0.1 * math.sqrt(hvd.size()))


def test_counts_ranks_and_passes():
    assert hvd.scaled_lr(0.1, base_size=2, passes=4) == pytest.approx(0.2 * hvd.size())
    last = tfhvd.add_process_set([hvd.size() - 1]) if hvd.size() > 1 else hvd.global_process_set
    assert hvd.scaled_lr(0.1, "sqrt", passes=4, process_set=last) == pytest.approx(0.2)
    tfhvd.remove_process_set(last)


def test_what_is_wrong():
    with pytest.raises(ValueError, match="Expected: one of linear, sqrt"):
        hvd.scaled_lr(0.1, "cubic")
    with pytest.raises(ValueError, match="passes=0"):
        hvd.scaled_lr(0.1, passes=0)
    with pytest.raises(TypeError, match="ExponentialDecay"):
        hvd.scaled_lr(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9))
