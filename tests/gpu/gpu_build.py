"""Compiles what the tests of GPUs need beside the core: the fakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FAKES = ROOT / "tests" / "gpu" / "fakes"
sys.path.insert(0, str(ROOT))

from build_tools import find, products  # noqa: E402


def build_driver(folder: Path) -> Path:
    """Compiles the fake for CUDA's driver and NCCL; returns the library."""
    library = folder / "libtfhvd_fake_gpu.so"
    sources = sorted(map(str, FAKES.glob("fake_*.cc")))
    compile_with(["-shared", "-fPIC", "-pthread", "-O1", *sources, "-lrt", "-o", str(library)])
    return library


def build_device(folder: Path) -> Path:
    """Compiles the pluggable device; returns the library."""
    library = folder / "libtfhvd_pluggable_gpu.so"
    tensorflow = find.find_tensorflow(find.find_target())
    flags = products.tensorflow_flags(tensorflow)
    link = [f"-L{tensorflow.folder}", "-l:libtensorflow_framework.so.2"]
    source = str(FAKES / "pluggable_gpu.cc")
    compile_with(["-shared", "-fPIC", *flags, source, *link, "-ldl", "-o", str(library)])
    return library


def compile_with(arguments: list[str]) -> None:
    """Compiles with these arguments and the tree on the path of headers."""
    command = [find.find_compiler(), "-std=c++17", f"-I{ROOT}", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-6000:]
