"""Runs the NCCL backend through the suite of all communicators in processes, on the fakes.

`tests/core/gpu_conformance.cc` is the program. nccl_test and gpu_levels_test do the same with ranks
as threads, at length.
"""

from __future__ import annotations

from pathlib import Path

import mpi
import pytest

# The ranks take themselves to be on the hosts that the first argument says, a letter a rank.
ON_HOSTS = """
import os, sys
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
os.environ["TFHVD_TEST_HOST"] = sys.argv[1][rank]
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("hosts", "operations", "by"),
    [
        ("aa", "nccl", "nccl"),
        ("aaaa", "nccl", "nccl"),
        ("abba", "hierarchical", "hierarchical"),
        ("aab", "hierarchical_host", "hierarchical"),
    ],
)
def test_conforms(programs: Path, hosts: str, operations: str, by: str):
    placeholder = str(programs / "libtfhvd_fake_gpu.so")
    environ = {
        "TFHVD_CUDA_LIBRARY": placeholder,
        "TFHVD_NCCL_LIBRARY": placeholder,
        "TFHVD_FAKE_GPUS": str(len(hosts)),
        "TFHVD_GPU_OPERATIONS": operations,
    }
    program = ["-c", ON_HOSTS, hosts, str(programs / "gpu_conformance"), "--small"]
    job = mpi.run_ranks(len(hosts), program, env=environ, timeout=120)
    assert job.code == 0, str(job)
    for number, rank in enumerate(job.ranks):
        assert f"rank {number} of {len(hosts)}: GPU {number} (fake)" in rank.out, str(job)
        assert f"our kernel loaded, by {by}\n" in rank.out, str(job)
        assert rank.out.endswith("\n0 failed\n"), str(job)
