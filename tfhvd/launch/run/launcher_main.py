"""The launcher as `run` starts it: `python -m tfhvd.launch.run.launcher_main WORDS-OF-TFHVDRUN`.

`run` ends it by SIGINT, which is blocked until this module runs: it would end Python's own start
with a traceback and another exit code. Whoever is started by nohup, or as a shell's background
job, ignores that signal, and so would all that he starts.
"""

from __future__ import annotations

import signal
import sys

from tfhvd.launch import cli


def main() -> int:
    """As tfhvdrun's: the exit code is 130 where it has been interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        return cli.main()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
