"""TensorFlow's tensors on a fake GPU, through the kernels for GPUs; NCCL is a fake as well.

The fakes are libraries of the tests, found as a user's are: by TFHVD_CUDA_LIBRARY and
TFHVD_NCCL_LIBRARY. They say nothing of a GPU's time or memory; see tests/gpu/run.sh. What the ranks
do is in on_fakes.py: one job of each size goes through all of it.
"""

from __future__ import annotations

import fake_jobs
import mpi
import pytest
import shared_memory
import troubleshooting

pytestmark = pytest.mark.thorough

PARTS = [(ranks, part) for ranks, parts in fake_jobs.PARTS.items() for part in parts]


@pytest.fixture(scope="module")
def job_of(fakes):
    """Returns a function from a number of ranks to the job of all parts, which runs once."""
    before = shared_memory.files()
    jobs: dict[int, mpi.Job] = {}

    def run(ranks: int) -> mpi.Job:
        if ranks not in jobs:
            jobs[ranks] = mpi.run_ranks(ranks, fake_jobs.everything, env=fakes, timeout=240)
        return jobs[ranks]

    yield run
    shared_memory.check_that_none_is_left(before)


@pytest.mark.parametrize(("ranks", "part"), PARTS)
def test_part(job_of, ranks, part):
    job = job_of(ranks)
    survivors = job.ranks[:-1] if part == "killed peer" else job.ranks
    for rank in survivors:
        assert f"passed: {part}\n" in rank.out, str(job)
    if part == "killed peer":
        assert "killed, as was meant" in job.ranks[-1].out, str(job)
        assert not job.left, str(job)


@pytest.mark.parametrize("ranks", list(fake_jobs.PARTS))
def test_what_was_chosen_for_the_user_is_said(job_of, ranks):
    job = job_of(ranks)
    said = "each rank uses the one with its number on the host" in job.ranks[0].err
    assert said == (ranks > 1), str(job)
    slow = [line for line in job.ranks[0].err.splitlines() if "go through the host" in line]
    why = (
        ["TFHVD_NCCL_LIBRARY", "tfhvd's kernel for the GPU cannot be loaded"] if ranks == 2 else []
    )
    assert len(slow) == len(why), str(job)
    assert all(word in line for word, line in zip(why, slow, strict=True)), slow


def test_two_ranks_on_one_gpu_are_refused_unless_it_goes_by_way_of_the_host(fakes):
    job = mpi.run_ranks(2, fake_jobs.one_gpu, env=fakes)
    assert job.code == 0, str(job)
    for rank in job.ranks:
        assert "ranks 0 and 1 use the same GPU" in rank.out, str(job)
        troubleshooting.check("`use the same GPU`", rank.out)
        assert "set_visible_devices" in rank.out
        assert "TFHVD_GPU_OPERATIONS=host" in rank.out
        assert rank.out.endswith("[1.0]\n"), str(job)
    assert "through the host" not in job.ranks[0].err
