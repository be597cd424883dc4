"""The fakes, which take the place of the GPU's driver, of NCCL and of TensorFlow's GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_build import build_device, build_driver


@pytest.fixture(scope="session")
def fakes(tmp_path_factory) -> dict[str, str]:
    """The environment of ranks that have fake GPUs, four on each host."""
    folder: Path = tmp_path_factory.mktemp("fakes")
    driver = str(build_driver(folder))
    return {
        "TFHVD_CUDA_LIBRARY": driver,
        "TFHVD_NCCL_LIBRARY": driver,
        "TFHVD_TEST_DEVICE": str(build_device(folder)),
        "TFHVD_FAKE_GPUS": "4",
    }
