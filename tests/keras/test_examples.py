"""The examples run as a user runs them, and learn to read."""

import re

import mpi
import pytest

ACCURACY = re.compile(r"test accuracy of (\d+) rank\(s\).*: ([0-9.]+)")


def run(name, ranks, *arguments, **options):
    """Runs an example; gives the accuracy that rank 0 printed, and no other rank."""
    script = mpi.ROOT / "examples" / name
    job = mpi.run_ranks(ranks, [str(script), *arguments], timeout=180, **options)
    assert job.code == 0, str(job)
    assert not job.left
    assert not any(rank.out for rank in job.ranks[1:]), str(job)
    [(size, accuracy)] = ACCURACY.findall(job.ranks[0].out)
    assert int(size) == ranks
    return float(accuracy)


def in_the_root():
    """What is there, but for Bazel's links: it may be at work beside the tests."""
    return {path for path in mpi.ROOT.iterdir() if not path.name.startswith("bazel-")}


def test_keras_digits(tmp_path):
    file = tmp_path / "digits.keras"
    before = in_the_root()
    assert run("keras_digits.py", 2, "--output", str(file)) >= 0.97
    assert file.is_file()
    assert in_the_root() == before


@pytest.mark.parametrize("ranks", [1, 2])
def test_custom_loop(ranks):
    assert run("custom_loop.py", ranks, mpirun=ranks > 1) >= 0.95


def test_tf_keras_digits():
    assert run("tf_keras_digits.py", 2) >= 0.95
