"""How the lines of the Python side begin."""

from __future__ import annotations

import re

import mpi

PROGRAM = """
import logging, sys
import tfhvd as hvd
log = logging.getLogger("tfhvd")
hvd.init()
log.warning("%d apples", 3)
log.info("nothing of interest")
try:
    raise ValueError("bad")
except ValueError:
    log.exception("it failed")
hvd.shutdown()
log.warning("alone")
logging.basicConfig(format="mine: %(message)s")
hvd.init()
log.warning("pears")
"""


def test_lines_say_rank_host_and_time_unless_the_program_has_its_own():
    job = mpi.run_ranks(2, PROGRAM)
    assert [rank.code for rank in job.ranks] == [0, 0], job
    for number, rank in enumerate(job.ranks):
        begin = rf"\[tfhvd rank {number} on \S+, 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z\]"
        assert re.search(rf"^{begin} warning: 3 apples$", rank.err, re.M), job
        assert re.search(rf"^{begin} error: it failed\nTraceback", rank.err, re.M), job
        assert "interest" not in rank.err
        assert re.search("^alone$", rank.err, re.M), job
        assert re.search("^mine: pears$", rank.err, re.M), job
        assert rank.err.count("pears") == 1, job
