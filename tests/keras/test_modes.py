"""Programs that have switched on a mode of TensorFlow, Keras or the system: see mode_program.py."""

import subprocess
from pathlib import Path

import mode_program
import mpi
import pytest
from variants import also

pytestmark = [pytest.mark.thorough, pytest.mark.variant]

PROGRAM = Path(mode_program.__file__)
USUAL = "bfloat16"


def turkish():
    """A locale in which "I" is not the capital of "i", and a comma stands in numbers, if there."""
    known = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout
    return next((name for name in known.split() if name.startswith("tr_TR")), "C")


@pytest.mark.parametrize(
    "mode", [USUAL, *(also(mode) for mode in mode_program.MODES if mode != USUAL)]
)
def test_a_program_runs_in(mode):
    environment = {"LC_ALL": turkish()} if "locale" in mode else {}
    job = mpi.run_ranks(2, [str(PROGRAM), mode], timeout=180, env=environment)
    assert job.code == 0, job
    parts = ("collectives", "gradients") if mode in mode_program.WITHOUT_KERAS else None
    for rank in job.ranks:
        done = [line.split()[0] for line in rank.out.splitlines() if line.endswith(" done")]
        assert tuple(done) == (parts or ("collectives", "gradients", "fit", "loop")), rank.out
    assert not job.left
