"""PreemptionWatch: one rank of each host runs a command that detects a preemption of the host."""

from __future__ import annotations

import logging
import subprocess
import threading

from tfhvd.protocol import variables
from tfhvd.runtime.membership import membership
from tfhvd.runtime.stop import request_stop

_logger = logging.getLogger("tfhvd")
_LONGEST = 30.0  # seconds for one run; a command that takes longer has no result
_NOT_RUN = (126, 127)  # exit codes of a shell that could not run the command


class PreemptionWatch:
    """Runs the command of `tfhvdrun --preemption-command` while this process takes part."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def start(self) -> None:
        """Begins to run the command, if there is one, on the first rank of each host."""
        own = variables.own()
        command = own.get(variables.PREEMPTION_COMMAND)
        self.stop()
        if not command or membership.require_topology().local_rank:
            return
        self._over = threading.Event()
        seconds = float(own.get(variables.PREEMPTION_INTERVAL, "5"))
        threading.Thread(
            target=_watch,
            args=(command, seconds, self._over),
            name="tfhvd-preemption",
            daemon=True,  # it must not keep the process alive
        ).start()

    def stop(self) -> None:
        """Ends the runs of the command."""
        self._over.set()


def _watch(command: str, seconds: float, over: threading.Event) -> None:
    """Runs the command until it reports a preemption; then asks all ranks to stop."""
    code: int | None = None
    while code != 0 and not over.wait(seconds):
        before, code = code, _exit_code(command)
        if code in _NOT_RUN and before != code:
            _logger.warning(
                "--preemption-command: the shell cannot run %r (exit code %d).", command, code
            )
    if over.is_set():
        return
    topology = membership.require_topology()
    _logger.warning(
        "--preemption-command says that host %s is about to be taken away: all ranks stop after "
        "the same step.",
        topology.hosts[topology.rank],
    )
    request_stop()


def _exit_code(command: str) -> int | None:
    """Runs the command, and returns its exit code; None if it took too long."""
    quiet = subprocess.DEVNULL
    try:
        ran = subprocess.run(
            ["sh", "-c", command], stdin=quiet, stdout=quiet, stderr=quiet, timeout=_LONGEST
        )
    except subprocess.TimeoutExpired:
        return None
    return ran.returncode


preemption_watch = PreemptionWatch()  # this process's
membership.at_leaving(preemption_watch.stop)
