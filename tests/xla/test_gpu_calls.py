"""The calls of compiled functions on a GPU, as XLA's runtime makes them, on the fakes."""

from __future__ import annotations

import sys
from pathlib import Path

import mpi
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

from gpu_build import build_driver, compile_with, find, products  # noqa: E402

EXEC = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Holds the program and the fake."""
    folder = tmp_path_factory.mktemp("calls")
    build_driver(folder)
    library = ROOT / "tfhvd" / "_lib"
    flags = products.tensorflow_flags(find.find_tensorflow(find.find_target()))
    sources = ("tests/xla/gpu_calls.cc", "cc/xla/handlers.cc", "cc/xla/request_text.cc")
    link = [f"-L{library}", "-ltfhvd_core", f"-Wl,-rpath,{library}", "-ldl"]
    paths = [str(ROOT / source) for source in sources]
    compile_with(["-pthread", "-O1", *flags, *paths, *link, "-o", str(folder / "gpu_calls")])
    return folder


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_calls_on_a_stream(folder: Path, ranks: int):
    driver = str(folder / "libtfhvd_fake_gpu.so")
    environ = {"TFHVD_CUDA_LIBRARY": driver, "TFHVD_NCCL_LIBRARY": driver}
    program = ["-c", EXEC, str(folder / "gpu_calls")]
    job = mpi.run_ranks(ranks, program, env=environ, mpirun=ranks > 1)
    assert job.code == 0, str(job)
    assert all("6 passed, 0 failed" in rank.out for rank in job.ranks), str(job)
