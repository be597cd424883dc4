"""Which tests belong together where `pytest -n 2` runs two at once.

Those of a file, for what its fixtures make, and those that one job runs; see ranks.py.
"""

from __future__ import annotations

import ranks
from xdist.scheduler import LoadScopeScheduling


class Scheduler(LoadScopeScheduling):
    """Gives each process of pytest what belongs together, what has the most tests first."""

    def _split_scope(self, nodeid: str) -> str:
        return ranks.job_of(nodeid) or nodeid.partition("::")[0]
