"""tests/gpu/run.sh, which checks a machine with a GPU: the whole of it on the fakes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_build import ROOT

pytestmark = pytest.mark.thorough


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the script as from a fresh terminal."""
    kept = ("OMPI_", "PMI", "PRTE_", "TFHVD_", "HOROVOD_", "SLURM_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(kept)}
    environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])
    command = [str(ROOT / "tests" / "gpu" / "run.sh"), *arguments]
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=600, check=False
    )


def test_all_of_it_on_the_fakes():
    ran = run("--fake")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for said in (
        "FAKES, no GPU",
        "rank 0 of 1: GPU 0 (fake)",
        "rank 1 of 2: GPU 0 (fake)",
        "allreduce of 4 bytes",
        "device-to-device copy by the driver",
        "our kernel, 128 pieces scaled and cast",
        "from the ready event to NCCL's launch",
        "1000 steps of 4 tensors on 2 ranks, sums checked",
        "that the last was killed: rank 1",
    ):
        assert said in ran.stdout, ran.stdout + ran.stderr
    assert ran.stdout.endswith("== all passed\n"), ran.stdout


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has a GPU")
def test_what_is_missing_is_said():
    ran = run()
    assert ran.returncode == 1
    assert "There is no nvidia-smi" in ran.stderr, ran.stderr
