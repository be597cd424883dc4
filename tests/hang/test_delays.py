"""Which rank is slow, by what the ranks have noted."""

from __future__ import annotations

import dataclasses
import os

import pytest
import user_messages
from flight_records import collective, record, seen

from tfhvd.hang import flight_record, slow_ranks
from tfhvd.hang.causes import Kind
from tfhvd.hang.classifier import judge


def steps(rank, waits, *, count=40, every=0.1, names=2, done=None, size=2):
    """A rank's record: in each step its collectives wait for ``waits(step)``: (rank, seconds)."""
    noted = []
    for step in range(count):
        whom, seconds = waits(step)
        for name in range(names):
            begun = step * every
            noted.append(
                collective(
                    len(noted) + 1,
                    f"gradient{name}",
                    begun,
                    agreed=begun + seconds,
                    began=begun + seconds,
                    ended=begun + seconds + 0.001,
                    waited_for=whom,
                )
            )
    made = record(rank, *noted, size=size, done=len(noted) if done is None else done)
    return dataclasses.replace(made, taken=count * every)


def test_the_rank_that_is_waited_for_and_the_share_of_the_time():
    found = slow_ranks.of(steps(0, lambda step: (1, 0.085)))
    assert found == slow_ranks.Delay(1, 0, pytest.approx(0.83, abs=0.03), 4.0, 40)
    assert str(found).startswith("rank 1 is slow: rank 0 has waited for it for 8")
    assert str(found).endswith("% of the last 4 s")


def test_more_steps_may_be_behind_it_than_the_record_holds():
    assert slow_ranks.of(steps(0, lambda step: (1, 0.05), done=8000)).steps == 4000


@pytest.mark.parametrize(
    "waits",
    [
        lambda step: (None, 0.05),  # nobody knows for whom
        lambda step: (-2, 0.05),
        lambda step: (1, 0.01),  # for too little
        lambda step: (1 + step % 2, 0.05),  # for each in turn
        lambda step: (1 if step == 3 else None, 3.0 if step == 3 else 0.0),  # once, as it compiled
        lambda step: (1 if step < 9 else None, 0.09),  # not in most steps
    ],
)
def test_what_is_no_slow_rank(waits):
    assert slow_ranks.of(steps(0, waits, size=3)) is None


def test_a_few_steps_say_nothing():
    assert slow_ranks.of(steps(0, lambda step: (1, 0.05), count=9)) is None
    assert slow_ranks.of(record(0)) is None


def test_the_one_that_waits_longest_speaks_for_all():
    records = [steps(rank, lambda step, rank=rank: (2, 0.03 + 0.02 * rank)) for rank in range(2)]
    found = slow_ranks.worst([*records, steps(2, lambda step: (None, 0.0))])
    assert (found.rank, found.waiter) == (2, 1)
    assert slow_ranks.worst([steps(2, lambda step: (None, 0.0))]) is None


def test_a_verdict_of_progress_names_it():
    looks = []
    for count, taken in ((40, 20.0), (50, 22.0)):
        looks.append([
            dataclasses.replace(seen(rank, taken=taken), record=steps(rank, waits, count=count))
            for rank, waits in enumerate([lambda step: (1, 0.085), lambda step: (None, 0.0)])
        ])  # fmt: skip
    found = judge(*looks)
    assert (found.kind, found.ranks, found.hangs) == (Kind.PROGRESS, (1,), False)
    user_messages.check("a rank is slow, in `tfhvd why`", *found.lines)


def test_it_is_told_once_and_not_of_a_job_that_has_just_begun(monkeypatch):
    reads = []

    def read(file):
        reads.append(file)
        return steps(0, lambda step: (1, 0.05), done=20 * len(reads) ** 3)

    monkeypatch.setattr(flight_record, "read", read)
    watch = slow_ranks.Watch()
    told = [watch.look(7, float(now)) for now in range(0, 40, 2)]
    assert [found.steps for found in told if found is not None] == [640]
    assert reads == [7] * 4, "not at each look, and no more once it was told"


def test_a_record_that_cannot_be_read_says_nothing():
    read, write = os.pipe()
    os.close(write)
    try:
        assert slow_ranks.Watch().look(read, 0.0) is None
    finally:
        os.close(read)
