"""The commands that print the figures of docs/performance.md, as far as they need nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import network
import pytest
from children import environment

FOLDER = Path(__file__).resolve().parent


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compiled_fit.py --rounds 1", "[0] | compiled |"),
        ("overlap.py --rounds 1", "[0] | compiled |"),
        ("overlap.py --rounds 1 --pause 1", "[0] | uncompiled |"),
        ("divergence.py --rounds 2 --steps 2", "[0] with comparisons: "),
        ("idle.py --seconds 1", "[0] rank 1 idle: "),
        ("threads.py", "[0] step: fastest "),
        ("names.py 500", "[0] 500 names: "),
    ],
)
def test_it_prints_its_figures(line, said):
    script, *words = line.split()
    launch = [sys.executable, "-m", "tfhvd.launch", "-np", "2", sys.executable]
    prints([*launch, FOLDER / script, *words], said)


@pytest.mark.thorough
def test_it_prints_how_long_a_program_takes_to_write_lines():
    prints([sys.executable, FOLDER / "output.py", "1"], "1 MB of lines: ")


@pytest.mark.thorough
def test_it_prints_how_long_bytes_take():
    words = ["--sizes", "1K", "1M", "--times", "1", "--only", "MPI"]
    prints([sys.executable, FOLDER / "over_bytes.py", *words], "| MPI | alltoall | ")


@pytest.mark.thorough
def test_it_prints_what_is_hidden_between_hosts():
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    words = ["--hosts", "2", "--rounds", "1", "--pause", "1"]
    prints([sys.executable, FOLDER / "overlap.py", *words], "[0] | uncompiled |")


@pytest.mark.thorough
def test_it_prints_how_long_iterators_keep_a_rank():
    prints([sys.executable, FOLDER / "iterators.py", "--times", "2"], "TensorFlow alone: ")


def prints(words, said):
    """Runs a script; a line that it prints begins so."""
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        env=environment(TF_CPP_MIN_LOG_LEVEL="3"),
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done
    assert any(row.startswith(said) for row in done.stdout.splitlines()), done
