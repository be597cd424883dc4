"""The launcher for `run`: `python -m tfhvd.launch.run.launcher_main ARGUMENTS-OF-TFHVDRUN`.

`run` ends the launcher by SIGINT, which is blocked until this module runs: during the start of
Python, SIGINT would end the process with a traceback and another exit code. This module also stops
ignoring SIGINT, because a background job of a shell ignores it, and so do the job's children.
"""

from __future__ import annotations

import signal
import sys

from tfhvd.launch import cli


def main() -> int:
    """Runs tfhvdrun; returns its exit code, which is 130 after an interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        return cli.main()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
