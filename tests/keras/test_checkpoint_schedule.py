"""When a checkpoint is due, by a clock that the test sets."""

import numpy as np
import pytest

from tfhvd.keras.callbacks import checkpoint


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    """The time in seconds, in a list."""
    now = [0.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    return now


def due_steps(clock, every, seconds):
    """Runs a step for each of `seconds`; returns the steps with a checkpoint, and the questions."""
    schedule, due, asked = checkpoint._Schedule(every), [], []

    def gather(values):
        asked.append(values)
        return np.array([[int(value) for value in values]] * 2)

    schedule.begin(0)
    for step, took in enumerate(seconds, 1):
        clock[0] += took
        if schedule.is_due(step, 1, gather):
            due.append(step)
            schedule.saved(step)
    return due, len(asked)


@pytest.mark.parametrize(("every", "seconds"), [("10 s", 10), ("5 min", 300), ("0.5 h", 1800)])
def test_a_time(clock, every, seconds):
    due, asked = due_steps(clock, every, [seconds / 128] * 1280)  # exact, as floats
    assert len(due) == 10 and max(np.diff([0, *due])) <= 129
    assert asked <= 10 * len(due)  # and not in each step


def test_steps_that_become_slower_are_not_waited_for_long(clock):
    due, _ = due_steps(clock, "10 s", [0.1] * 60 + [1.0] * 40)
    assert due[0] <= 60 + 4 + 20  # half of the steps that were expected until then


def test_steps(clock):
    assert due_steps(clock, 30, [1.0] * 100) == ([30, 60, 90], 0)


@pytest.mark.parametrize("every", ["5", "min", "-1 s", 0, -3, "0 s", None, 2.5])
def test_what_is_no_schedule(every):
    with pytest.raises(ValueError, match=r"Expected: a time such as '5 min', '30 s' or '1 h'"):
        checkpoint._Schedule(every)
