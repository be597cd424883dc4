"""TensorFlow's start-up lines are taken out of a stream, however it is cut."""

from __future__ import annotations

import pytest

from tfhvd.launch.state.tensorflow_banner import StartupFilter, is_startup_line

STARTUP = [
    "2026-01-31 12:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN is on.",
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795358245.586896   11651 cpu_feature_guard.cc:227] This TensorFlow binary",
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow",
    "E0000 00:00:1795358320.548069   12439 cuda_platform.cc:52] failed call to cuInit: INTERNAL",
]
KEPT = [
    "",
    "2026-01-31 12:00:00.123456: W tensorflow/core/framework/op.cc:1] something new",
    "2026-01-31 12:00:00.123456 is the time",
    "12/100",
    "I0131 12:00:00.123456 140735 train.py:12] epoch 1",
    "To be continued",
]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_start_up_lines_are_taken_out(size):
    lines = [line for pair in zip(STARTUP, KEPT) for line in pair] + KEPT[5:]
    stream = "".join(line + "\n" for line in lines).encode()
    through = StartupFilter()
    shown = b"".join(through.feed(stream[at : at + size]) for at in range(0, len(stream), size))
    assert shown + through.finish() == "".join(line + "\n" for line in KEPT).encode()


def test_what_is_no_beginning_of_one_is_shown_at_once():
    through = StartupFilter()
    assert through.feed(b"\r1/9") == b"\r1/9"
    assert through.feed(b"\b\b\b") == b"\b\b\b"
    assert through.feed(b"\nname? ") == b"\nname? "
    assert through.feed(b"\n2/9") == b"\n2/9"
    assert through.feed(b"\n2026-01") == b"\n"
    assert through.feed(b" is new") == b"2026-01 is new"
    assert through.feed(b"\n20") == b"\n"
    assert through.finish() == b"20"


def test_a_programs_own_information_is_not_tensorflows():
    assert all(map(is_startup_line, STARTUP))
    assert not any(map(is_startup_line, KEPT))
