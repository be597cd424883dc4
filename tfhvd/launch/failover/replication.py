"""The launcher's side of a takeover by another host: sends its state to all agents in advance."""

from __future__ import annotations

import dataclasses
import hmac
import pickle
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tfhvd.launch.failover import successor
from tfhvd.launch.state.quorum import Quorum
from tfhvd.launch.state.supervisor_config import SupervisorConfig
from tfhvd.network import handshake

_SIGNATURE = 32  # bytes


@dataclass(frozen=True)
class TakeoverState:
    """The state with which a supervisor on another host takes over.

    Attributes:
        config: the configuration of the supervisor.
        handover: the state of the launcher.
        reachable: the numbers of the ranks on other hosts than the launcher's.
    """

    config: SupervisorConfig
    handover: Any
    reachable: frozenset[int]


def sealed(will: TakeoverState) -> bytes:
    """Return the state as bytes: signed with the token of the job, and without this token."""
    secret = will.config.token
    config = dataclasses.replace(will.config, token="")
    data = pickle.dumps(dataclasses.replace(will, config=config))
    return _signed(secret, data) + data


def opened(data: bytes, token: str) -> TakeoverState:
    """Read what `sealed` returned.

    Args:
        data: the bytes.
        token: the token of the job.

    Raises:
        ValueError: if the signer does not know the token. Nothing has been unpickled.
    """
    signature, data = data[:_SIGNATURE], data[_SIGNATURE:]
    if not hmac.compare_digest(signature, _signed(token, data)):
        raise ValueError("the takeover state is not signed with the job's token")
    will: TakeoverState = pickle.loads(data)
    return dataclasses.replace(will, config=dataclasses.replace(will.config, token=token))


def _signed(token: str, data: bytes) -> bytes:
    return handshake.signature(token.encode(), b"will " + data)


class Replicator:
    """The sender of the state, and of the order of successors, to all agents.

    Args:
        config: the configuration of the supervisor.
    """

    def __init__(self, config: SupervisorConfig) -> None:
        self._config = config
        self._successor: dict[int, str] = {}  # by rank, the address of a successor on its host
        self._here: set[int] = set()  # the ranks on this host
        self._latest = b""

    def heard(self, rank: int, inherits_at: str, *, here: bool) -> None:
        """Note that an agent has connected.

        Args:
            rank: the number of the agent's rank.
            inherits_at: the address of a successor on the agent's host; "" if none can run there.
            here: whether the agent runs on the launcher's host, and fails with this host.
        """
        if here:
            self._here.add(rank)
        else:
            self._successor[rank] = inherits_at
        self._latest = b""  # the new agent has no state

    def is_certain(self, rank: int) -> bool:
        """Return whether an agent without contact has certainly ended, and its rank with it."""
        return rank in self._here

    def write(self, handover: object, present: Collection[int], majority: Quorum) -> bytes | None:
        """Return the message with the current state; None if all agents have it.

        Args:
            handover: the state of the launcher.
            present: the numbers of the members.
            majority: the quorum, which notes the version that is sent.
        """
        reachable = frozenset(each for each in present if each in self._successor)
        will = sealed(TakeoverState(self._config, handover, reachable))
        if will == self._latest:
            return None
        self._latest = will
        order = [
            (rank, self._successor[rank]) for rank in sorted(reachable) if self._successor[rank]
        ]
        return successor.frame(majority.tell(present), order, will)
