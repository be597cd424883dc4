"""Ranks that wait for different collectives: in another order, or for what only some call."""

from __future__ import annotations

from pathlib import Path

from tfhvd.launch import hang_report
from tfhvd.watch import verdict
from tfhvd.watch.flight import Collective, Record
from tfhvd.watch.kind import Kind
from tfhvd.watch.snapshot import Snapshot, is_users


def collective(number: int, name: str, *, done: bool) -> Collective:
    at = float(number)
    times = (at, at, at) if done else (None, None, None)
    return Collective(number, name, "", "allreduce", 1, 4, at, *times, "", None, failed=False)


def rank(number: int, size: int, done: str, waits_for: str, taken: float) -> Snapshot:
    names = [collective(i, name, done=True) for i, name in enumerate(done, 1)]
    names.append(collective(len(done) + 1, waits_for, done=False))
    record = Record(
        *(number, size, 1000 + number, 1000, "alpha", 0.0, 0.0, 0, 0),
        *(len(names), len(done), float(len(names)), taken, tuple(names)),
    )
    return Snapshot(record, "S", 1.0, 0, 0, 0.0, 0, "", (("train.py:7 in step",),), taken)


def judged(ranks: dict[int, tuple[str, str]]) -> verdict.Verdict:
    """What each rank has done, one letter a collective, and what it waits for."""
    first, second = (
        [rank(number, len(ranks), *each, taken) for number, each in ranks.items()]
        for taken in (100.0, 110.0)
    )
    return verdict.judge(first, second)


def test_what_all_have_done_equally_often_comes_in_another_order() -> None:
    found = judged({0: ("abab", "a"), 1: ("abab", "b"), 2: ("abab", "a")})
    assert (found.kind, found.ranks) == (Kind.ORDER, (1,))
    assert "the same collectives in a different order" in found.lines[0]
    assert any("same order" in line for line in found.lines)


def test_what_was_never_done_is_called_by_some_only() -> None:
    found = judged({0: ("aa", "a"), 1: ("aa", "extra"), 2: ("aa", "a")})
    assert (found.kind, found.ranks) == (Kind.DIFFERENT, (1,))


def test_what_was_done_more_seldom_is_called_once_more_by_some_only() -> None:
    found = judged({0: ("aaaam", "a"), 1: ("aaaam", "m"), 2: ("aaaam", "a")})
    assert (found.kind, found.ranks) == (Kind.DIFFERENT, (1,))


def test_a_terminal_gets_at_most_25_lines_of_256_ranks(tmp_path: Path) -> None:
    seen = {n: rank(n, 256, "", f"t{n}", 110.0) for n in range(256)}
    before = {n: rank(n, 256, "", f"t{n}", 100.0) for n in range(256)}
    found = verdict.judge([*before.values()], [*seen.values()])
    assert len(hang_report.lines(found, [before, seen], tmp_path)) <= 25


def test_the_line_of_an_operation_is_not_the_users() -> None:
    assert not is_users("<string>:189 in tfhvd_allreduce")
    assert is_users("<string>:3 in <module>")  # of `python -c`
    assert is_users("/home/me/train.py:86 in every_step")
