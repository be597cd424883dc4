"""Our declarations of CUDA's driver API and NCCL against NVIDIA's headers, which are not needed.

TensorFlow's full wheel brings some; tensorflow-cpu has none, and then there is nothing to compare.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from gpu_build import ROOT, find

PARTS = ("cuda_cudart", "cuda_nccl", "cuda_nvcc", "cuda_cccl")


def test_our_declarations_are_nvidias():
    tensorflow = find.find_tensorflow(find.find_target())
    external = tensorflow.folder / "include" / "external"
    folders = [folder for part in PARTS for folder in _include(external / part)]
    if not any((folder / "nccl.h").is_file() for folder in folders):
        pytest.skip("this TensorFlow has no headers of NVIDIA's")
    flags = [f"-isystem{folder}" for folder in folders]
    source = "tests/gpu/abi_check.cc"
    command = [find.find_compiler(), "-std=c++17", "-fsyntax-only", "-I.", *flags, source]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-6000:]


def _include(part: Path) -> list[Path]:
    folders = (part / "include", part / "libcudacxx" / "include")
    return [folder for folder in folders if folder.is_dir()]
