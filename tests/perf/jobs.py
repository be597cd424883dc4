"""Jobs that are measured: what they find in their environment, and how they fail."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# One thread a rank to compute, no GPU, and the sources of this tree.
SETTINGS = {
    "PYTHONPATH": str(ROOT),
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
}


class JobError(Exception):
    """A job ended badly; the text is its last lines."""


def run(command: Sequence[str], env: Mapping[str, str], timeout: float | None = None) -> None:
    """Runs a job to its end, with SETTINGS and `env` added to the environment.

    Raises:
        JobError: if it does not end with 0.
        subprocess.TimeoutExpired: after so many seconds.
    """
    job = subprocess.run(
        list(command),
        env={**os.environ, **SETTINGS, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    if job.returncode != 0:
        raise JobError(f"{' '.join(command)} ended with {job.returncode}:\n{job.stdout[-3000:]}")
