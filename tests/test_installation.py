"""What scripts for Horovod ask before they train."""

from __future__ import annotations

import subprocess
import sys

import mpi
import pytest

import tfhvd as hvd
from tfhvd import installation


def test_of_this_build():
    assert hvd.mpi_built() is True and hvd.mpi_enabled() is True
    names = [backend.name for backend in installation.build_info().backends if backend.available]
    assert hvd.gloo_built() is hvd.gloo_enabled() is ("gloo" in names)
    assert (hvd.nccl_built() > 0) is hvd.cuda_built() is ("nccl" in names)
    assert not (hvd.rocm_built() or hvd.ccl_built() or hvd.ddl_built())


@pytest.mark.parametrize(
    ("available", "detail", "number"),
    [(True, "NCCL 2.27.3", 22703), (True, "some NCCL", 1), (False, "no libnccl.so.2", 0)],
)
def test_version_of_nccl(monkeypatch, available, detail, number):
    found = installation.Backend("nccl", available, detail)
    monkeypatch.setattr(installation, "_backend", {"nccl": found}.get)
    assert hvd.nccl_built() == number


def test_threads_of_mpi_are_known_after_init():
    program = """
import tfhvd as hvd
try:
    hvd.mpi_threads_supported()
except hvd.NotInitializedError as error:
    print("before:", error)
hvd.init()
print("after:", hvd.mpi_threads_supported())
"""
    out = subprocess.check_output([sys.executable, "-c", program], cwd=mpi.ROOT, text=True)
    assert "before: tfhvd has not been initialized" in out and "after: True" in out


@pytest.mark.parametrize("number", range(-1, 17))
def test_powers_of_two(number):
    assert hvd.check_num_rank_power_of_2(number) == (number in (1, 2, 4, 8, 16))
