"""The flight record, from its bytes to a sentence."""

from __future__ import annotations

import os
import struct

import pytest
from flight_records import collective
from flight_records import record as made_up

from tfhvd.hang import flight_record
from tfhvd.hang.flight_record import RecordError, State

SLOTS = 4
TEXT = b"\0loss\0train.py:7 in step\0shm_ALLREDUCE\0grads (process set 2)\0\0"
LOSS, RUN, GRADS = 1, 25, 39  # where these texts begin


def slot(
    number, submitted=0, agreed=0, began=0, ended=0, name=LOSS, phase=0, waited=-1, state=0, kind=0
):
    times = [int(1e9 * time) for time in (submitted, agreed, began, ended)]
    return struct.pack("=Q5q2IiH2B", number, *times, 4000, name, phase, waited, 1, kind, state)


def record(*slots, version=3, done=0, epoch=0, step=0, tells_until=0):
    head = struct.pack(
        "=8s5I4iI2qQq3q24xQq48x64s",
        *(b"tfhvdrec", version, 256, SLOTS, 64, len(TEXT), 1, 4, 4711, 4710, 0),
        *(int(10e9), int(1e18), len(slots), int(11e9), epoch, step, int(1e9 * tells_until)),
        *(done, int(9e9), b"n1"),
    )
    return head + b"".join(slots).ljust(SLOTS * 64, b"\0") + TEXT


def parsed(*slots, taken=20.0, **more):
    data = record(*slots, **more)
    return flight_record.parse(data, data, taken)


def test_it_says_whose_it_is():
    found = parsed()
    assert (found.rank, found.size, found.pid, found.leader) == (1, 4, 4711, 4710)
    assert (found.host, found.began, found.began_unix, found.progress) == ("n1", 10, 1e9, 11)
    assert found.position == ""
    assert found.collectives == ()


def test_its_watch_can_tell_for_as_long_as_it_said():
    assert not parsed().can_tell
    assert parsed(tells_until=20.5, taken=20.0).can_tell
    assert not parsed(tells_until=20.5, taken=21.0).can_tell


def test_how_far_fit_has_come():
    found = parsed(epoch=3, step=7)
    assert found.position == "after step 7 of epoch 3"
    assert found.doing() == (
        "It was in no collective, and had begun none. That was after step 7 of epoch 3."
    )


def test_states_follow_the_times():
    found = parsed(
        slot(5, 1, 2, 3, 4, state=1),
        slot(2, 1, 2, 0, 4, state=2),
        slot(3, 1, 2, 3, phase=RUN),
        slot(4, 1, 2),
    )
    assert [c.number for c in found.collectives] == [2, 3, 4, 5]
    states = [State.FAILED, State.RUNNING, State.QUEUED, State.DONE]
    assert [c.state for c in found.collectives] == states
    assert parsed(slot(1, 1)).collectives[0].state is State.WAITING
    assert found.of(State.RUNNING)[0].phase == "shm_ALLREDUCE"


def test_texts_and_ranks():
    [one, other, nameless] = parsed(
        slot(1, waited=3), slot(2, name=GRADS, waited=-2, kind=1), slot(3, name=0, kind=77)
    ).collectives
    assert (one.name, one.origin, one.waited_for) == ("loss", "train.py:7 in step", 3)
    assert (other.name, other.origin, other.waited_for) == ("grads (process set 2)", "", None)
    assert (nameless.name, nameless.kind) == ("", "collective 77")
    assert str(one) == "allreduce 'loss' (4 kB, train.py:7 in step)"
    assert str(other) == "allgather 'grads (process set 2)' (4 kB)"


def test_long_texts_are_cut():
    long = b"\0" + b"n" * 2000 + b"\0" + b"o" * 2000 + b"\0"
    head = struct.pack(
        "=8s5I4iI2qQq3q24xQq48x64s", b"tfhvdrec", 3, 256, 1, 64, len(long), *[0] * 14, b""
    )
    data = head + slot(1) + long
    [found] = flight_record.parse(data, data, 0.0).collectives
    assert (found.name, found.origin) == ("n" * 500, "o" * 500)


def test_what_is_overwritten_while_it_is_read_is_left_out():
    data = record(slot(1, 1), slot(2, 1))
    later = record(slot(5, 9), slot(2, 1))
    assert [c.number for c in flight_record.parse(data, later, 0.0).collectives] == [2]


@pytest.mark.parametrize(
    ("slots", "sentence"),
    [
        ([], "It was in no collective, and had begun none."),
        (
            [slot(1, 19.5), slot(2, 19.75)],
            "It had waited for other ranks with allreduce 'loss' (4 kB, train.py:7 in step) and 1 "
            "more for 0.500 s.",
        ),
        (
            [slot(1, 5, waited=2)],
            "It had waited for rank 2 with allreduce 'loss' (4 kB, train.py:7 in step) for 15.0 s.",
        ),
        (
            [slot(1, 1, 2, 17.5), slot(2, 1)],
            "It was in allreduce 'loss' (4 kB, train.py:7 in step), which had begun 2.5 s before.",
        ),
        (
            [slot(1, 1, 2, 3, 10, state=1)],
            "It was in no collective: its only one had ended 10.0 s before: allreduce 'loss' "
            "(4 kB, train.py:7 in step).",
        ),
    ],
)
def test_doing_is_one_sentence(slots, sentence):
    assert parsed(*slots, done=1).doing() == sentence


def test_who_has_joined_does_not_wait_in_vain():
    found = parsed(slot(1, 1, kind=6), slot(2, 1, 2, 3, 4, state=1))
    assert found.waiting() == []
    assert [c.number for c in parsed(slot(1, 1), slot(2, 1, 2)).waiting()] == [1, 2]


PAUSES = [slot(n, 1, 2, 3, 4e8 * n, state=1) for n in (1, 2, 3)]  # 4e8 s between two


@pytest.mark.parametrize(
    ("slots", "done", "limit", "expected"),
    [
        ([slot(1, 5)], 0, 1.0, True),
        ([slot(1, 5)], 0, 1e9, False),  # the limit is not over
        ([slot(1, 5, kind=6)], 0, 1.0, False),  # it has joined
        ([slot(1, 1, 2, 3, 4, state=1)], 1, 1.0, False),  # it waits for nobody
        ([*PAUSES, slot(4, 5)], 3, 1.0, False),  # such a pause is usual
    ],
    ids=["waits", "not long", "joined", "nothing", "usual"],
)
def test_a_rank_that_waits_in_vain(slots, done, limit, expected):
    file = os.memfd_create("test")
    try:
        os.write(file, record(*slots, done=done))
        assert flight_record.waits_in_vain(file, limit) == expected
        os.truncate(file, 10)
        assert not flight_record.waits_in_vain(file, limit)
    finally:
        os.close(file)


@pytest.mark.parametrize("data", [b"", b"tfhvdrec", b"x" * 500, record(version=99)])
def test_what_is_no_record_is_refused(data):
    with pytest.raises(RecordError):
        flight_record.parse(data, data, 0.0)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1500, "1.5 kB"), (123456789, "123 MB")],
)
def test_sizes(count, text):
    assert flight_record.size_text(count) == text


def test_a_file_is_read_as_of_now_or_of_when_its_rank_ended():
    file = os.memfd_create("test")
    try:
        os.write(file, record(slot(1, 5)))
        assert flight_record.read(file, 7.0).doing().endswith("for 2.0 s.")
        assert flight_record.read(file).taken > 0
    finally:
        os.close(file)


def usual_pause(*steps: tuple[float, str]) -> float:
    """Of a job with these collectives: by how much each was done later, and its name."""
    at, done = 10.0, [collective(0, "first", agreed=9.0, began=9.0, ended=10.0)]
    for number, (pause, name) in enumerate(steps, 1):
        at += pause
        done.append(collective(number, name, agreed=at, began=at, ended=at))
    return made_up(0, *done).usual_pause()


def test_one_long_pause_is_an_exception_and_two_are_usual():
    assert usual_pause((5, "g"), (100, "g")) == 5
    assert usual_pause((30, "g"), (30, "g"), (30, "g")) == pytest.approx(30)
    assert usual_pause((1, "g")) == 0
    assert usual_pause() == 0


def test_a_compilation_does_not_make_a_short_job_wait_for_longer():
    """Of few steps the 99th percentile were the longest pause, ten times which are 20 minutes."""
    steps = [(120.0, "a"), (0.01, "b"), *[(0.1, "a"), (0.01, "b")] * 20]
    assert usual_pause(*steps) == pytest.approx(0.1)


def test_a_validation_after_each_of_few_epochs_does_not_either():
    """The second longest pause of all would be a validation, ten times which are 100 minutes."""
    epoch = [(0.1, "a"), (0.01, "b")] * 250
    assert usual_pause(*[*epoch, (600.0, "a"), (0.01, "b")] * 4) == pytest.approx(0.1)


def test_a_validation_after_every_few_steps_is_usual():
    epoch = [(0.1, "a"), (0.01, "b")] * 50
    assert usual_pause(*[*epoch, (60.0, "a"), (0.01, "b")] * 20) == pytest.approx(60)


@pytest.mark.parametrize("names", [[f"g{n}" for n in range(300)], ["g"] * 300])
def test_pauses_between_steps_are_usual_however_many_collectives_a_step_has(names):
    """Of all pauses the 99th percentile would be one within a step."""
    step = [(30.0, names[0]), *[(0.001, name) for name in names[1:]]]
    assert usual_pause(*step * 7) == pytest.approx(30)


def test_where_no_name_comes_again_each_pause_counts():
    assert usual_pause(*[(30.0, f"step {n}") for n in range(9)]) == pytest.approx(30)
