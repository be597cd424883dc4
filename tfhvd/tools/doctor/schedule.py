"""Who measures with whom at the same time: no host twice at once. Pure."""

from __future__ import annotations

_SECONDS = 6.0  # for all rounds together
_SHORTEST, _LONGEST = 0.05, 0.4  # seconds of a measurement, each way


def rounds(count: int) -> list[list[tuple[int, int]]]:
    """Returns rounds of pairs: each pair of `count` hosts once, no host twice in a round.

    Example:
        >>> rounds(3)
        [[(1, 2)], [(0, 1)], [(0, 2)]]
    """
    if count < 2:
        return []
    size = count + count % 2  # the last of an odd count pauses
    found = []
    for turn in range(size - 1):
        circle = [0, *((turn + at) % (size - 1) + 1 for at in range(size - 1))]
        pairs = [(circle[at], circle[size - 1 - at]) for at in range(size // 2)]
        ordered = sorted((min(pair), max(pair)) for pair in pairs)
        found.append([pair for pair in ordered if pair[1] < count])
    return found


def seconds_each(number_of_rounds: int) -> float:
    """Returns how long a measurement of one way may take, so that all end in time.

    Example:
        >>> seconds_each(1)
        0.4
    """
    share = _SECONDS / max(1, number_of_rounds) / 3  # each way, and the round trips
    return min(_LONGEST, max(_SHORTEST, share))
