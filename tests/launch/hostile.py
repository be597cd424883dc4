"""What a stranger may send to the listeners of a job, and a process of the job that has gone mad.

Frames are drawn from a seed. They are made of what listeners know, such as greetings and the
messages of the protocol: cut off, put together, nested, doubled, sent again, with wrong bytes.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
from pathlib import Path

from tfhvd.network import handshake, tls, tokens
from tfhvd.protocol import messages

DEEP = b"[" * 100_000
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"  # of Prometheus

# Of a process that has proved to be of the job: to a launcher, none of them means anything.
NONSENSE = (
    messages.frame(messages.FrameKind.HELLO, b'{"rank": 1e999}'),
    messages.frame(messages.FrameKind.HELLO, DEEP),
    messages.frame(messages.FrameKind.HELLO, b'{"rank": 0, "host": 5, "again": 7}'),
    messages.frame(messages.FrameKind.HELLO, b'{"rank": 99, "host": "h"}'),
    messages.frame(messages.FrameKind.STATUS_QUERY, DEEP),
    messages.frame(messages.FrameKind.EXIT, b'{"code": 1}'),
    b"\xff" * 100,
)
# Of anybody.
_KNOWN = (
    *NONSENSE,
    handshake.MAGIC,
    handshake.MAGIC + b"launcher\0\0\0\0" + b"n" * 16,
    handshake.MAGIC + struct.pack("<3I", 0, 1, 0) + b"n" * 16,
    struct.pack("<QIIQ", 0, 7, 0, 1 << 60),  # the head of a frame between ranks
    struct.pack("!Q32s", 1 << 62, b""),  # of a message of network/signed_channel.py
    messages.frame_json(messages.FrameKind.SIGNAL, signal=9, group=True),
    messages.frame(messages.FrameKind.QUIT),
    REQUEST,
    b"GET /?" + b"a&" * 3000 + b" HTTP/1.1\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),  # of TLS
    b"",
)


def frame(draw: random.Random, seen: list[bytes]) -> bytes:
    """One frame of a stranger.

    Args:
        draw: what it is drawn from.
        seen: what processes of the job have said to this listener, to be sent again.
    """
    known = [*_KNOWN, *seen]
    data = draw.choice(known)
    for _ in range(draw.randrange(4)):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(6)
        if kind == 0:  # cut off
            data = data[:at]
        elif kind == 1:  # together with another one
            data = data[:at] + draw.choice(known)
        elif kind == 2:  # nested
            data = messages.frame(
                draw.choice(
                    (
                        messages.FrameKind.HELLO,
                        messages.FrameKind.STATUS_QUERY,
                        messages.FrameKind.TAKEOVER_STATE,
                    )
                ),
                data[: messages.LIMIT],
            )
        elif kind == 3:  # doubled
            data += data[:at]
        elif kind == 4 and data:  # bytes that are off
            changed = bytearray(data)
            for _ in range(draw.randrange(1, 9)):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            data = bytes(changed)
        else:
            data += draw.getrandbits(8 * 200).to_bytes(200, "big")
        data = data[: 1 << 17]
    return data


def nonsense(draw: random.Random) -> bytes:
    """One frame of a process of the job, to its launcher: no prefix of it means anything."""
    head = draw.choice(
        (
            messages.FrameKind.HELLO,
            messages.FrameKind.STATUS_QUERY,
            messages.FrameKind.EXIT,
            messages.FrameKind.OUTPUT,
            messages.FrameKind.JOINING,
            messages.FrameKind.SNAPSHOT,
        )
    )
    kind = draw.randrange(4)
    if kind == 0:
        return draw.choice(NONSENSE)
    if kind == 1:  # nested, not to be read
        depth = draw.randrange(1, 8000)
        return messages.frame(head, draw.choice((b"[", b'{"rank":')) * depth)
    if kind == 2:  # longer than any may be, or cut off
        return (
            bytes([head]) + struct.pack("!I", draw.randrange(1 << 32)) + b"{" * draw.randrange(2000)
        )
    return messages.frame(head, b"\xff" + draw.getrandbits(8 * 64).to_bytes(64, "big"))


def recorded(at: tuple[str, int], token: str, about: str) -> bytes:
    """What a process of the job says in the handshake with a listener, before it is encrypted."""
    said = []
    with contextlib.ExitStack() as stack:
        sock, binding = reached(at, tokens.encrypts(token), 20.0)
        stack.callback(sock.close)

        class Recorder:
            def sendall(self, data: bytes) -> None:
                said.append(data)
                sock.sendall(data)

            def __getattr__(self, name: str) -> object:
                return getattr(sock, name)

        handshake.prove(Recorder(), token, about, 20.0, binding)  # type: ignore[arg-type]
    return b"".join(said)


def reached(
    at: tuple[str, int], encrypts: bool, limit: float, source: str = ""
) -> tuple[socket.socket, bytes]:
    """A connection, encrypted if asked for, and its binding. For the source see `say`."""
    sock = socket.socket()
    try:
        if source:
            sock.bind((source, 0))
        sock.settimeout(limit)
        sock.connect(at)
        if not encrypts:
            return sock, b""
        secured = tls.encrypted(sock, listens=False)
        sock = secured
        return secured, secured.agree()
    except BaseException:
        sock.close()
        raise


def say(at: tuple[str, int], data: bytes, source: str = "", *, encrypts: bool = False) -> bytes:
    """Connects, says something, and nothing more; returns what is answered to the end.

    Args:
        at: where.
        data: what is said.
        source: the address of this host that it comes from; any if "".
        encrypts: whether it encrypts what it says.
    """
    came = b""
    try:
        with reached(at, encrypts, 60.0, source)[0] as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(data)
            # TLS itself is not told: what comes afterwards is still to be decrypted.
            socket.socket.shutdown(sock, socket.SHUT_WR)
            while more := sock.recv(1 << 16):
                came += more
    except socket.timeout:
        raise  # it does not close the connection
    except OSError:
        pass  # it has closed it before all was said
    return came


def descriptors(process: int) -> int:
    """How many a process has."""
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())


def resident(process: int) -> int:
    """The bytes of memory that a process has."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
