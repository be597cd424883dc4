"""A rank of `run`: fetches the function, calls it, and sends back its result or its exception.

tfhvdrun starts it as `python -m tfhvd.launch.run.rank_main`.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
import traceback
from typing import Any

import cloudpickle

from tfhvd.launch.run.payload import call_of
from tfhvd.network.signed_channel import Channel
from tfhvd.protocol import transfer
from tfhvd.protocol.variables import rank_of


def main() -> None:
    """Runs the rank; raises the function's exception, so that the rank ends like a script."""
    rank = rank_of(os.environ)
    addresses, token = os.environ.pop(transfer.ADDRESS), os.environ.pop(transfer.TOKEN)
    try:
        channel, payload = transfer.join(addresses, token, rank)
    except OSError as error:
        sys.exit(
            f"tfhvd.run: rank {rank} on host {socket.gethostname()} cannot reach the process that "
            f"called run ({error}). Open that port, or name the network with network_interfaces."
        )
    done = threading.Event()
    threading.Thread(target=_watch, args=(channel.sock, done), daemon=True).start()
    try:
        function, args, kwargs = call_of(payload)
        answer = cloudpickle.dumps(("returned", function(*args, **kwargs)))
    except BaseException as error:
        _send(channel, done, _failure(error))
        raise
    _send(channel, done, answer)


def _failure(error: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    said = traceback.format_exception_only(type(error), error)[-1].strip()
    try:
        original: Any = cloudpickle.dumps(error)
        cloudpickle.loads(original)  # some exceptions can be written, but not read
    except Exception:
        original = None
    return pickle.dumps(("raised", (said, trace, original)))


def _send(channel: Channel, done: threading.Event, answer: bytes) -> None:
    channel.send(answer)
    done.wait(60)  # until the caller has the answer; if the caller ends, `_watch` ends this process


def _watch(sock: socket.socket, done: threading.Event) -> None:
    """Ends this process if the caller ends before it has the answer."""
    try:
        received = sock.recv(1)
    except OSError:
        received = b""
    if not received:
        print("tfhvd.run: the process that called run is gone", file=sys.stderr, flush=True)
        os._exit(1)
    done.set()


if __name__ == "__main__":
    main()
