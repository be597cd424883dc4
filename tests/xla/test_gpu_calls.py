"""The calls of compiled functions on a GPU, as XLA's runtime makes them, on the fakes."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mpi
import pytest
from variants import also

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

from gpu_build import build_driver, compile_with, find, products  # noqa: E402

pytestmark = pytest.mark.thorough

EXEC = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Holds the program and the fake."""
    folder = tmp_path_factory.mktemp("calls")
    library = ROOT / "tfhvd" / "_lib"
    flags = products.tensorflow_flags(find.find_tensorflow(find.find_target()))
    sources = ("tests/xla/gpu_calls.cc", "cc/xla/handlers.cc", "cc/xla/request_text.cc")
    # Each takes its time, and there may be processors for several.
    objects = [str(folder / Path(source).with_suffix(".o").name) for source in sources]
    with ThreadPoolExecutor(os.cpu_count()) as compilers:
        jobs = [compilers.submit(build_driver, folder)]
        for source, made in zip(sources, objects):
            words = ["-pthread", "-O1", *flags, "-c", str(ROOT / source), "-o", made]
            jobs.append(compilers.submit(compile_with, words))
        for job in jobs:
            job.result()
    link = [f"-L{library}", "-ltfhvd_core", f"-Wl,-rpath,{library}", "-ldl"]
    compile_with(["-pthread", *objects, *link, "-o", str(folder / "gpu_calls")])
    return folder


@pytest.mark.parametrize("ranks", [also(1), 2])
def test_the_calls_on_a_stream(folder: Path, ranks: int):
    driver = str(folder / "libtfhvd_fake_gpu.so")
    environ = {"TFHVD_CUDA_LIBRARY": driver, "TFHVD_NCCL_LIBRARY": driver}
    program = ["-c", EXEC, str(folder / "gpu_calls")]
    job = mpi.run_ranks(ranks, program, env=environ, mpirun=ranks > 1)
    assert job.code == 0, str(job)
    assert all("6 passed, 0 failed" in rank.out for rank in job.ranks), str(job)
