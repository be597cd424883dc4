"""Many outputs on one stream: no line torn, none lost, unfinished ones shown in time."""

from __future__ import annotations

import random

import pytest

from tfhvd.launch.stdio.line_merger import GIVE_WAY_AFTER, LONGEST, SHOW_AFTER, LineMerger


class Screen:
    def __init__(self, *, terminal: bool = False) -> None:
        self.text = b""
        self.writes = 0
        self.merger = LineMerger(self._write, terminal=terminal)

    def _write(self, source, data: bytes) -> None:
        self.text += data
        self.writes += 1

    def say(self, rank: int, data: bytes, now: float = 0.0) -> bytes:
        """Feeds, and returns what was written because of it."""
        before = len(self.text)
        self.merger.feed(rank, b"[%d] " % rank, data, now)
        return self.text[before:]

    def tick(self, now: float) -> bytes:
        before = len(self.text)
        self.merger.tick(now)
        return self.text[before:]


def test_a_line_in_pieces_is_written_whole():
    screen = Screen()
    assert screen.say(0, b"a") == b""
    assert screen.say(1, b"x\ny\n") == b"[1] x\n[1] y\n"
    assert screen.say(0, b" b\n\n") == b"[0] a b\n[0] \n"


def test_an_unfinished_line_is_shown_in_time_and_continued_in_place():
    screen = Screen(terminal=True)
    screen.say(0, b"name? ", 10.0)
    assert screen.merger.waiting()
    assert screen.tick(10.0 + SHOW_AFTER / 2) == b""
    assert screen.tick(10.0 + SHOW_AFTER) == b"[0] name? "
    assert not screen.merger.waiting()
    assert screen.say(0, b"me", 11.0) == b"me"
    assert screen.say(0, b"!\n", 11.0) == b"!\n"


def test_a_progress_bar_keeps_its_prefix():
    screen = Screen()
    assert screen.say(0, b"\r1/9", 0.0) == b""
    assert screen.tick(1.0) == b"[0] \r[0] 1/9"
    assert screen.say(0, b"\b\b\b\r", 1.1) == b"\b\b\b\r"
    assert screen.say(0, b"2/9", 1.1) == b"[0] 2/9"
    assert screen.say(0, b"\b\b\b\r9/9\n", 1.2) == b"\b\b\b\r[0] 9/9\n"


def test_on_a_terminal_a_bar_gives_way_and_comes_back():
    screen = Screen(terminal=True)
    screen.say(0, b"\r1/9", 0.0)
    screen.tick(1.0)
    assert screen.say(1, b"hello\n", 1.0) == b"\r\x1b[K[1] hello\n[0] 1/9"
    assert screen.say(0, b"\b\b\b\r2/9", 1.1) == b"\b\b\b\r[0] 2/9"


def test_in_a_file_an_interrupted_line_comes_again_whole():
    screen = Screen()
    screen.say(0, b"one ", 0.0)
    screen.tick(1.0)
    assert screen.say(1, b"hello\n", 1.0) == b"\n[1] hello\n"
    assert screen.tick(2.0) == b"", "not again before there is something new"
    assert screen.say(0, b"two\n", 3.0) == b"[0] one two\n"


def test_two_unfinished_lines_take_turns():
    screen = Screen()
    screen.say(0, b"first", 0.0)
    screen.tick(0.5)
    screen.say(1, b"second", 0.6)
    assert screen.tick(0.9) == b""
    assert screen.tick(GIVE_WAY_AFTER + 0.1) == b"\n[1] second"


def test_the_end_of_a_rank_ends_its_line():
    screen = Screen()
    screen.say(0, b"bye")
    screen.merger.finish(0)
    screen.merger.finish(0)
    assert screen.text == b"[0] bye\n"


def test_windows_line_ends_stay():
    screen = Screen()
    assert screen.say(0, b"a\r\nb\r\n") == b"[0] a\r\n[0] b\r\n"


def test_a_line_has_the_prefix_of_its_beginning():
    screen = Screen()
    for prefix, data in ((b"1 ", b"a"), (b"2 ", b"b\nc\nd"), (b"3 ", b"\r"), (b"4 ", b"e\n")):
        screen.merger.feed(0, prefix, data, 0.0)
    assert screen.text == b"1 ab\n2 c\n2 d\r2 e\n"


def test_a_very_long_line_is_not_held_back():
    screen = Screen()
    assert screen.say(0, b"x" * 100_000).startswith(b"[0] xxx")
    assert screen.say(0, b"y\n") == b"y\n"


def test_lines_that_come_together_are_written_at_once():
    screen = Screen()
    screen.say(0, b"begun ")
    assert screen.say(0, b"line\n" * 10_000) == b"[0] begun line\n" + b"[0] line\n" * 9_999
    assert screen.writes == 2, "the line that had begun, and the others"


def test_of_a_line_without_an_end_only_so_much_is_kept():
    screen = Screen()
    for _ in range(10):
        screen.say(0, b"x" * LONGEST)
    screen.say(1, b"hello\n")
    assert screen.say(0, b"y\n") == b"[0] " + b"x" * LONGEST + b"y\n"


def prefixed(text: bytes, prefix: bytes) -> bytes:
    """What is to be written of one source's whole lines: byte by byte."""
    out, before = b"", b"\n"
    for byte in (text[at : at + 1] for at in range(len(text))):
        anew = before == b"\n" or (before == b"\r" and byte not in b"\r\n")
        out, before = out + (prefix if anew else b"") + byte, byte
    return out


@pytest.mark.parametrize("seed", range(50))
def test_however_it_is_cut_what_is_written_is_the_same(seed):
    chance = random.Random(seed)
    text = bytes(chance.choice(b"ab\r\r\n") for _ in range(200)) + b"\n"
    screen, at = Screen(), 0
    while at < len(text):
        cut = chance.randrange(1, 40)
        screen.say(0, text[at : at + cut])
        at += cut
        if chance.random() < 0.3:  # what has no end yet is shown
            screen.tick(1e9)
    assert screen.text == prefixed(text, b"[0] ")


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_order_every_line_appears_whole(seed):
    chance = random.Random(seed)
    screen = Screen()
    lines = {rank: [b"%d:%d:%s" % (rank, n, b"z" * chance.randrange(9)) for n in range(30)]
             for rank in range(3)}  # fmt: skip
    left = {rank: b"".join(line + b"\n" for line in lines[rank]) for rank in lines}
    now = 0.0
    while any(left.values()):
        rank = chance.choice([rank for rank in left if left[rank]])
        cut = chance.randrange(1, 12)
        screen.say(rank, left[rank][:cut], now)
        left[rank] = left[rank][cut:]
        now += chance.choice([0.0, 0.01, 0.7])
        screen.tick(now)
    written = screen.text.split(b"\n")
    for rank, expected in lines.items():
        mine = [line[4:] for line in written if line.startswith(b"[%d] " % rank)]
        position = 0
        for line in expected:  # in order, and whole; what stands between was interrupted
            position = mine.index(line, position) + 1
