"""Exit codes that tell the parent of a program why the program has ended. Standard library only."""

from __future__ import annotations

# The ranks have stopped together on request. EX_TEMPFAIL of sysexits.h: try again later.
STOP_REQUESTED = 75
