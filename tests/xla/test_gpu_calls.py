"""The calls of compiled functions on a GPU, as XLA's runtime makes them, on the stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

from gpu_build import build_driver, compile_with, find, products  # noqa: E402


def test_the_calls_on_a_stream(tmp_path: Path):
    driver = str(build_driver(tmp_path))
    program = tmp_path / "gpu_calls"
    library = ROOT / "tfhvd" / "_lib"
    flags = products.tensorflow_flags(find.find_tensorflow(find.find_target()))
    sources = ("tests/xla/gpu_calls.cc", "cc/xla/handlers.cc", "cc/xla/request_text.cc")
    link = [f"-L{library}", "-ltfhvd_core", f"-Wl,-rpath,{library}", "-ldl", "-o", str(program)]
    paths = [str(ROOT / source) for source in sources]
    compile_with(["-pthread", "-O1", *flags, *paths, *link])
    starters = ("OMPI_", "PMI", "PRTE_", "SLURM_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(starters)}
    environ |= {"TFHVD_CUDA_LIBRARY": driver, "TFHVD_NCCL_LIBRARY": driver}
    ran = subprocess.run(
        [str(program)], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed, 0 failed" in ran.stdout, ran.stdout
