"""Whether a supervisor that takes the place of one on another host may go on. Pure."""

from __future__ import annotations

from collections.abc import Collection

from tfhvd.launch.majority import has_most

_COME_BY, _GIVE_UP = 2.0, 10.0  # seconds until it goes on without some, and ends without most


class Claim:
    """That of one supervisor, from its beginning on.

    Args:
        awaited: the ranks, by number, whose workers may come.
        now: seconds of a steady clock.
    """

    def __init__(self, awaited: Collection[int], now: float) -> None:
        self._awaited = frozenset(awaited)
        self._began = now

    def stands(self, came: Collection[int], present: Collection[int], now: float) -> bool | None:
        """Whether the job goes on here; None: that is not known yet.

        Args:
            came: the ranks whose workers have come.
            present: the members, by the newest roster that any of these has.
            now: seconds of a steady clock.
        """
        all_came = self._awaited.issubset(came)
        if has_most(came, present) and (all_came or now >= self._began + _COME_BY):
            return True
        return False if now >= self._began + _GIVE_UP else None
