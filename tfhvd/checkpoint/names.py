"""Names with Keras' numbers, which are different in a process that has made more layers before."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable

_NUMBER = re.compile(r"_(\d+)(?=_|$)")


def same_names(wanted: Iterable[str], saved: Iterable[str]) -> dict[str, str]:
    """Returns the saved name for each wanted name, if the two differ only in numbers.

    Example:
        >>> same_names(["dense_2/kernel", "dense_3/kernel"], ["dense/kernel", "dense_1/kernel"])
        {'dense_2/kernel': 'dense/kernel', 'dense_3/kernel': 'dense_1/kernel'}
    """
    by_place = {place: name for name, place in _places(saved).items()}
    return {name: by_place[place] for name, place in _places(wanted).items() if place in by_place}


def _places(names: Iterable[str]) -> dict[str, tuple[tuple[str, int], ...]]:
    """Returns by name its words, with each number as its position among equal words."""
    split = {name: [_parted(word) for word in name.split("/")] for name in names}
    numbers: dict[str, set[tuple[int, ...]]] = collections.defaultdict(set)
    for words in split.values():
        for word, found in words:
            numbers[word].add(found)
    places = {word: sorted(found) for word, found in numbers.items()}
    return {
        name: tuple((word, places[word].index(found)) for word, found in words)
        for name, words in split.items()
    }


def _parted(word: str) -> tuple[str, tuple[int, ...]]:
    return _NUMBER.sub("", word), tuple(int(number) for number in _NUMBER.findall(word))
