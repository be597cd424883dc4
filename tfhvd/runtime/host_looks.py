"""Looks at the ranks of other hosts: each rank answers, to ranks of its job, for all on its host.

Only where no launcher watches: there each worker answers. What was agreed at `init` is where each
rank listens, and a secret without which it does not answer.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tfhvd.launch import address, inquiry
from tfhvd.launch.inquiry import Watcher
from tfhvd.watch.hang_watch import Views

PATIENCE = 0.2  # seconds for a thread to end; one that looks at a rank goes on for some more
_TO_ASK = 2.0  # seconds for a question to come after the connection
_AT_ONCE = 16  # hosts that are asked at the same time
_TRIED = 3  # ranks of a host: those that are stopped do not answer


class Answers:
    """Answers for the ranks of this host.

    Args:
        look: takes a look at them.
        waits: whether one of them has waited in vain for so many seconds.
    """

    def __init__(self, look: Callable[[], Views], waits: Callable[[float], bool]) -> None:
        self._look = look
        self._waits = waits
        self._token = ""
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def listen(self) -> str:
        """Opens a port; returns what the other ranks must know to ask: "" where there is none."""
        self.close()
        try:
            self._listener = address.listen(remote=True)
        except OSError:  # the sandbox allows none; then only this host's ranks are seen
            return ""
        self._token = secrets.token_hex(16)
        port = self._listener.getsockname()[1]
        return f"{self._token} {address.addresses(port, remote=True)}"

    def start(self) -> None:
        """Begins to answer, in a thread of its own."""
        if self._listener is not None:
            self._thread = threading.Thread(
                target=self._run, args=(self._listener,), name="tfhvd-answers", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Closes the port, and ends it once the answer that is under way is over."""
        if self._listener is not None:
            address.stop(self._listener)
        if self._thread is not None:
            self._thread.join(PATIENCE)
        self._listener = self._thread = None

    def _run(self, listener: socket.socket) -> None:
        for sock in address.connections(listener):
            # Whoever breaks off, or is a stranger, gets no answer.
            with contextlib.suppress(*inquiry.FAILURES), sock:
                inquiry.answer_one(sock, self._token, self._look, self._waits, _TO_ASK)


class OtherHosts:
    """The hosts of the job but this one.

    Args:
        addresses: by rank, what `Answers.listen` has returned there.
        host_of: by rank, the number of its host.
        rank: this one's.
    """

    def __init__(self, addresses: Sequence[str], host_of: Sequence[int], rank: int) -> None:
        self._own = host_of[rank]
        self._hosts: dict[int, list[Watcher]] = {}
        for each, host in zip(addresses, host_of):
            token, _, at = each.partition(" ")
            if host != self._own and at:
                self._hosts.setdefault(host, []).append(Watcher(at, token))

    def wait_before(self, limit: float) -> bool:
        """Whether a rank of a host before this one has waited in vain: it will say what is seen."""
        return any(
            inquiry.waits(watcher, limit)
            for host, watchers in sorted(self._hosts.items())
            if host < self._own
            for watcher in watchers[:1]
        )

    def look(self) -> Views:
        """Takes a look at their ranks, all hosts at once; what does not answer is not in it."""
        if not self._hosts:
            return {}
        try:
            with ThreadPoolExecutor(min(_AT_ONCE, len(self._hosts))) as pool:
                seen = list(pool.map(_look_at, self._hosts.values()))
        except RuntimeError:  # the interpreter ends, and no thread begins any more
            return {}
        return {each.rank: each for host in seen for each in host}


def _look_at(watchers: Sequence[Watcher]) -> Sequence[inquiry.Snapshot]:
    return next(filter(None, map(inquiry.look, watchers[:_TRIED])), [])
