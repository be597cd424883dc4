"""A job whose ranks have different versions does not begin, and every rank says which."""

from __future__ import annotations

import mpi
import pytest
import troubleshooting

pytestmark = pytest.mark.thorough

PROGRAM = """
import tfhvd as hvd
from tfhvd.runtime import membership
if mpi_rank() == 1:
    OTHER
try:
    hvd.init()
except hvd.TfhvdError as error:
    print(type(error).__name__, error)
assert not hvd.is_initialized()
"""
RANK = """
import os
def mpi_rank():
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")))
"""


@pytest.mark.parametrize(
    ("other", "what", "has"),
    [
        ('membership.__version__ = "0.0.1"', "tfhvd", "0.0.1 on rank 1"),
        (
            'membership.check_installed_tensorflow = lambda: "9.9.1"',
            "TensorFlow",
            "9.9 on rank 1",
        ),
    ],
)
def test_a_job_of_mixed_versions(other, what, has):
    job = mpi.run_ranks(2, RANK + PROGRAM.replace("OTHER", other))
    assert job.code == 0, job
    for rank in job.ranks:
        assert rank.out.startswith(f"TfhvdError the ranks run different versions of {what}: ")
        assert has in rank.out and " on rank 0 (host " in rank.out
        assert len(rank.out.splitlines()) == 1
        if what == "tfhvd":
            troubleshooting.check("`the ranks run different versions of`", rank.out)
    assert not job.left


def test_ranks_that_do_not_know_their_tensorflow_fit_the_others():
    other = 'membership.check_installed_tensorflow = lambda: ""'
    program = PROGRAM.replace("OTHER", other).replace("not hvd.is_", "hvd.is_")
    job = mpi.run_ranks(2, RANK + program)
    assert job.code == 0 and not any(rank.out for rank in job.ranks), job
