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


@pytest.mark.thorough
def test_keras_digits(tmp_path):
    file = tmp_path / "digits.keras"
    before = in_the_root()
    assert run("keras_digits.py", 2, "--output", str(file)) >= 0.97
    assert file.is_file()
    assert in_the_root() == before


@pytest.mark.thorough
@pytest.mark.parametrize("ranks", [1, 2])
def test_custom_loop(ranks):
    assert run("custom_loop.py", ranks, mpirun=ranks > 1) >= 0.95


@pytest.mark.thorough
def test_data_pipeline():
    assert run("data_pipeline.py", 2) >= 0.95


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "least"), [("mixed_precision.py", 0.95), ("transformer.py", 0.93)]
)
def test_trains_well(name, least):
    assert run(name, 2) >= least


@pytest.mark.thorough
def test_checkpoint_and_resume(tmp_path):
    """The second job, of another size, begins where the first has ended."""
    script = str(mpi.ROOT / "examples" / "checkpoint_and_resume.py")
    for ranks, epochs, first in [(2, 4, 1), (1, 10, 5)]:
        arguments = ["--folder", str(tmp_path), "--epochs", str(epochs)]
        job = mpi.run_ranks(ranks, [script, *arguments], timeout=180, mpirun=ranks > 1)
        assert job.code == 0, str(job)
        assert f"begins with epoch {first}\n" in job.ranks[0].out
    lines = (tmp_path / "training.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["epoch", *map(str, range(10))]
    assert (tmp_path / "best.keras").is_file()


@pytest.mark.thorough
def test_tensor_board(tmp_path):
    assert run("tensor_board.py", 2, "--logs", str(tmp_path)) >= 0.93
    written = {path.parent.name for path in tmp_path.rglob("events*")}
    assert written == {"train", "validation"}


@pytest.mark.thorough
def test_gan():
    job = mpi.run_ranks(2, [str(mpi.ROOT / "examples" / "gan.py")], timeout=180)
    assert job.code == 0, str(job)
    assert "of that of digits" in job.ranks[0].out and not job.ranks[1].out


@pytest.mark.thorough
def test_tf_keras_digits():
    assert run("tf_keras_digits.py", 2) >= 0.95
