"""Ranks that `tfhvdrun` has started, one of which calls `init` late."""

from __future__ import annotations

import re
import sys

import pytest
from late_ranks import PROGRAM, SAID
from launching import launch, script
from variants import also

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("transport", [also("mpi"), "tcp"])
def test_a_rank_that_is_late_is_named_once(transport, tmp_path):
    path = script(tmp_path, PROGRAM)
    outcome = launch(
        *("--transport", transport, "--stall-check-warning-time-seconds", "1", "-np", 3),
        *(sys.executable, path),
        LATE_BY="5",
    )
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("met") == 3
    assert len(re.findall(SAID, outcome.err)) == 1, outcome.err
    assert outcome.err.count("hvd.init() has waited") == 1
