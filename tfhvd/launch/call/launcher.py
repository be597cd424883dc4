"""The launcher as `run` starts it: `python -m tfhvd.launch.call.launcher`, then tfhvdrun's words.

`run` ends it by SIGINT. Whoever is started by nohup, or as a shell's background job, ignores that
signal, and so would all that he starts.
"""

from __future__ import annotations

import signal
import sys

from tfhvd.launch.cli import main

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
