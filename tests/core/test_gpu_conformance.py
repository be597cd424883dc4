"""Runs the NCCL backend through the suite of all communicators in processes, on the fakes.

`tests/core/gpu_conformance.cc` is the program. nccl_test does the same with ranks as threads, at
length.
"""

from __future__ import annotations

from pathlib import Path

import mpi
import pytest

pytestmark = pytest.mark.thorough

RUN = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.parametrize("ranks", [2, 4])
def test_conforms(programs: Path, ranks: int):
    placeholder = str(programs / "libtfhvd_fake_gpu.so")
    environ = {
        "TFHVD_CUDA_LIBRARY": placeholder,
        "TFHVD_NCCL_LIBRARY": placeholder,
        "TFHVD_FAKE_GPUS": str(ranks),
    }
    program = ["-c", RUN, str(programs / "gpu_conformance"), "--small"]
    job = mpi.run_ranks(ranks, program, env=environ, timeout=120)
    assert job.code == 0, str(job)
    for number, rank in enumerate(job.ranks):
        assert f"rank {number} of {ranks}: GPU {number} (fake)" in rank.out, str(job)
        assert "our kernel loaded, by nccl\n" in rank.out, str(job)
        assert rank.out.endswith("\n0 failed\n"), str(job)
