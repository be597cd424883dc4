"""Holds what is written down of NVIDIA's libraries to NVIDIA's own wheels; needs no GPU.

    python .ci/nvidia.py

- tests/gpu/abi_check.cc compiles against the headers of CUDA 12 and 13, and of the oldest and the
  newest NCCL.
- cc/device/batched_copy.ptx.inc is what its source gives, and the assembler takes it for old and
  new GPUs.

Downloads about 0.8 GB of wheels into a temporary folder and takes out of them what it needs: NCCL's
header comes in no smaller package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The oldest NCCL that TensorFlow's extra `and-cuda` allows, and the newest known.
NCCL = ("nvidia-nccl-cu12==2.27.7", "nvidia-nccl-cu12==2.32.3")
CUDA_12 = (
    "nvidia-cuda-runtime-cu12==12.9.79",
    "nvidia-cuda-nvcc-cu12==12.9.86",
    "nvidia-cuda-cccl-cu12==12.9.27",
)
CUDA_13 = (
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-cuda-crt==13.5.37",
    "nvidia-cuda-cccl==13.3.5.0.6",
)
COMPILER = "nvidia-cuda-nvrtc-cu12==12.9.86"  # the version that the committed PTX is from

PTX = ROOT / "cc" / "device" / "batched_copy.ptx.inc"
ARCHITECTURES = ("sm_70", "sm_80", "sm_90", "sm_100", "sm_120")


def unpack(wheels: Iterable[str], wanted: Iterable[str], folder: Path) -> Path:
    """Downloads wheels and unpacks those of their files whose path has one of the wanted parts."""
    kept = folder / "wheels"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(kept), *wheels]
    subprocess.run(command, check=True)
    for path in kept.iterdir():
        with zipfile.ZipFile(path) as wheel:
            names = [n for n in wheel.namelist() if any(part in n for part in wanted)]
            wheel.extractall(folder, names)
        path.unlink()
    return folder


def include_flags(folder: Path) -> list[str]:
    """The folders of headers of unpacked wheels, for the compiler."""
    return [f"-isystem{path}" for path in sorted((folder / "nvidia").glob("*/include"))]


def check_headers(cuda: Path, nccl: Path) -> None:
    """Compiles our declarations beside NVIDIA's."""
    flags = [*include_flags(cuda), *include_flags(nccl)]
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++17", "-fsyntax-only", "-I.", *flags, "tests/gpu/abi_check.cc"]
    subprocess.run(command, cwd=ROOT, check=True)


def check_ptx(nvrtc: Path, ptxas: Path, folder: Path) -> None:
    """Compiles the kernel's source anew, and assembles what is committed."""
    command = [sys.executable, "-m", "build_tools.make_ptx", "--check"]
    path = os.pathsep.join([str(nvrtc), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=True)
    text = PTX.read_text(encoding="utf-8")
    source = folder / "batched_copy.ptx"
    source.write_text(text.split('R"ptx(\n')[1].split(')ptx"')[0], encoding="utf-8")
    ptxas.chmod(0o755)
    for architecture in ARCHITECTURES:
        result = folder / f"{architecture}.cubin"
        assemble = [str(ptxas), f"-arch={architecture}", str(source), "-o", str(result)]
        subprocess.run(assemble, check=True)


def main() -> None:
    """Downloads, and checks everything."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        headers = ("/include/",)
        cuda_12 = unpack(CUDA_12, (*headers, "bin/ptxas"), top / "cuda12")
        cuda_13 = unpack(CUDA_13, headers, top / "cuda13")
        for number, wheel in enumerate(NCCL):
            nccl = unpack([wheel], headers, top / f"nccl{number}")
            for cuda in (cuda_12, cuda_13):
                check_headers(cuda, nccl)
        nvrtc = unpack([COMPILER], (".so",), top / "nvrtc")
        check_ptx(nvrtc, next(cuda_12.glob("nvidia/*/bin/ptxas")), top)
    print(f"our declarations fit {', '.join(NCCL)}; the PTX fits its source")


if __name__ == "__main__":
    main()
