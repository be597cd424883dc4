"""tests/gpu/run.sh, which checks a machine with a GPU: the core's part of it on the fakes."""

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


def test_all_of_it_on_the_fakes(tmp_path):
    ran = run("--fake", "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for said in (
        "FAKES, no GPU",
        "rank 0 of 1: GPU 0 (fake)",
        "rank 1 of 2: GPU 0 (fake)",
        "device-to-device copy by the driver",
        "our kernel, 128 pieces scaled and cast",
        "ResNet-50, 214 tensors: scaled and cast",
        "from the ready event to the call of NCCL",
        "8 allreduces in a group, not blocking",
        "1000 steps of 4 tensors on 2 ranks, sums checked",
        "that the last was killed: rank 1",
    ):
        assert said in ran.stdout, ran.stdout + ran.stderr
    assert f"== all passed; all that was said is in {tmp_path}/gpu_check.txt\n" in ran.stdout, (
        ran.stdout
    )
    assert "1000 steps" in (tmp_path / "gpu_check.txt").read_text()


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has a GPU")
def test_what_is_missing_is_said():
    ran = run()
    assert ran.returncode == 1
    assert "There is no nvidia-smi" in ran.stderr, ran.stderr


def test_a_step_that_fails_is_told_and_the_next_one_begins(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, does in (("gpu_conformance", "echo no; exit 3"), ("gpu_times", "echo 1 GB/s")):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    ran = run("--fake", "--programs", str(programs), "--out", str(tmp_path / "out"))
    assert ran.returncode == 1
    assert "FAILED: the suite of all communicators, one rank (exit code 3" in ran.stdout
    assert "== bandwidths and times, one rank\n1 GB/s\n" in ran.stdout, ran.stdout
    assert "FAILED: steps, and a rank is killed" in ran.stdout  # nobody heard
    assert ran.stdout.endswith(
        f"== 3 failed; all that was said is in {tmp_path}/out/gpu_check.txt\n"
    )
