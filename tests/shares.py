"""Shares of the tests, for those who have no time for all: `pytest --share 2/3`.

Each test is in one of them, whatever other tests there are and in which order they run.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """One of several parts of the tests, about equally large.

    Attributes:
        number: of this one, from 1.
        of: how many there are.
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Reads such as "2/3".

        Raises:
            ValueError: if it is no such text.
        """
        number, _, of = text.partition("/")
        share = cls(int(number), int(of))
        if not 1 <= share.number <= share.of:
            raise ValueError(f"Received: {text!r}. Expected: a share such as '2/3'.")
        return share

    def has(self, name: str) -> bool:
        """Whether a test of this name is in it."""
        return zlib.crc32(name.encode()) % self.of == self.number - 1
