"""Exit codes by which those who start a program know why it has ended. Standard library only."""

from __future__ import annotations

# The ranks stopped together because they were asked to; EX_TEMPFAIL of sysexits.h: try again later.
STOP_REQUESTED = 75
