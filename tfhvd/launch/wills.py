"""What other hosts know of a job in case that the launcher's is lost: the launcher's side."""

from __future__ import annotations

import dataclasses
import hmac
import pickle
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tfhvd.launch import handshake, heirs
from tfhvd.launch.majority import Majority
from tfhvd.launch.orders import Orders

_SIGNATURE = 32  # bytes


@dataclass(frozen=True)
class Will:
    """What a supervisor on another host needs.

    Attributes:
        orders: what it is to do.
        estate: what it takes over.
        reachable: the ranks on other hosts than the one that is lost, by number.
    """

    orders: Orders
    estate: Any
    reachable: frozenset[int]


def sealed(will: Will) -> bytes:
    """A will as it travels: signed, and without the token that signs it."""
    secret = will.orders.token
    orders = dataclasses.replace(will.orders, token="")
    data = pickle.dumps(dataclasses.replace(will, orders=orders))
    return _signed(secret, data) + data


def opened(data: bytes, token: str) -> Will:
    """Reads a will that was sealed.

    Args:
        data: of `sealed`.
        token: the job's.

    Raises:
        ValueError: it was not sealed by who knows the token. Nothing of it has been read.
    """
    signature, data = data[:_SIGNATURE], data[_SIGNATURE:]
    if not hmac.compare_digest(signature, _signed(token, data)):
        raise ValueError("what tfhvdrun is said to have left is not signed by it")
    will: Will = pickle.loads(data)
    return dataclasses.replace(will, orders=dataclasses.replace(will.orders, token=token))


def _signed(token: str, data: bytes) -> bytes:
    return handshake.signature(token.encode(), b"will " + data)


class Wills:
    """What is told to all workers, also by whom the launcher is to be followed.

    Args:
        orders: what is to be done.
    """

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._heirs: dict[int, str] = {}  # by rank, where one on its host would listen
        self._here: set[int] = set()  # the ranks of this host
        self._latest = b""

    def heard(self, rank: int, inherits_at: str, *, here: bool) -> None:
        """A worker has said hello.

        Args:
            rank: its rank's number.
            inherits_at: where an heir on its host would listen; "" where there can be none.
            here: whether it is on the launcher's host, and lost with it.
        """
        if here:
            self._here.add(rank)
        else:
            self._heirs[rank] = inherits_at
        self._latest = b""  # it has not got it

    def is_certain(self, rank: int) -> bool:
        """Whether a worker that is gone without a word has ended for sure, and its rank with it."""
        return rank in self._here

    def write(self, estate: object, present: Collection[int], majority: Majority) -> bytes | None:
        """Leaves the estate to the other hosts.

        Args:
            estate: what there is to know.
            present: the members, by number.
            majority: takes note of what they are told.

        Returns:
            What all workers are told; None where they have been.
        """
        reachable = frozenset(each for each in present if each in self._heirs)
        will = sealed(Will(self._orders, estate, reachable))
        if will == self._latest:
            return None
        self._latest = will
        order = [(rank, self._heirs[rank]) for rank in sorted(reachable) if self._heirs[rank]]
        return heirs.frame(majority.tell(present), order, will)
