"""A rank that the doctor has started: does what it is asked over one connection, until it ends.

Started as `python -m tfhvd.tools.doctor.probe`, under tfhvdrun. Question and answer are a line
of JSON each, with the question's number. The first line is the probe's own: rank, version, and the
port for measurements.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from tfhvd._version import __version__
from tfhvd.errors import TfhvdError
from tfhvd.job import process
from tfhvd.network import connector
from tfhvd.protocol import variables
from tfhvd.protocol.variables import rank_of
from tfhvd.tools import facts
from tfhvd.tools.doctor import link

# In the environment of a probe. The prefix carries them to other hosts.
ADDRESS = "TFHVDRUN_DOCTOR_ADDRESS"
TOKEN = "TFHVDRUN_DOCTOR_TOKEN"
ABOUT = "doctor"  # what listens, as handshake calls it

_CONNECT = 5.0  # seconds


class Probe:
    """Answers questions.

    Args:
        environ: the environment of the process.
        token: of all probes of this doctor.
    """

    def __init__(self, environ: Mapping[str, str], token: str) -> None:
        self._environ = environ
        self._token = token
        self._server = link.Server(token)

    def hello(self) -> dict[str, Any]:
        """Returns what is said first."""
        return {
            "rank": rank_of(self._environ),
            "version": __version__,
            "host": socket.gethostname(),
            "port": self._server.port,
        }

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Does what a question asks for."""
        what = question["ask"]
        if what == "facts":
            return facts.gather(self._environ).to_json()
        if what == "time":
            return {"time": time.time()}
        if what == "measure":
            measured = link.measure(
                question["addresses"], question["port"], self._token, question["seconds"]
            )
            return dataclasses.asdict(measured)
        if what == "meet":
            return {"error": _meet()}
        raise ValueError(f"not a question: {question!r}")


def _meet() -> str:
    """Does what every program begins with; returns what went wrong."""
    try:
        process.init()
        process.shutdown()
    except (TfhvdError, ImportError, ValueError) as error:
        return str(error)
    return ""


def main() -> None:
    """Runs the probe; it ends when the doctor ends the connection."""
    environ = variables.own()
    try:
        sock = _connect(environ[ADDRESS], environ[TOKEN])
    except OSError as error:
        sys.exit(f"it cannot reach the doctor: {error}")
    probe = Probe(environ, environ[TOKEN])
    with sock, sock.makefile("rw", encoding="utf-8") as file:
        print(json.dumps(probe.hello()), file=file, flush=True)
        for line in file:
            question = json.loads(line)
            answer = {"number": question["number"], "answer": probe.answer(question)}
            print(json.dumps(answer), file=file, flush=True)


def _connect(addresses: str, token: str) -> socket.socket:
    reasons = []
    for target in addresses.split(","):
        host, _, port = target.rpartition(":")
        try:
            return connector.connect((host, int(port)), token, ABOUT, to_connect=_CONNECT).sock
        except OSError as error:
            reasons.append(f"{target}: {error}")
    raise OSError("; ".join(reasons))


if __name__ == "__main__":
    main()
