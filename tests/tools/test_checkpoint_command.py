"""`tfhvd checkpoint`: lists, shows and verifies, without TensorFlow."""

import subprocess
import sys

import numpy as np
import pytest

from tfhvd.checkpoint.store import Store
from tfhvd.checkpoint.writer import Job, Writer
from tfhvd.tools import cli


@pytest.fixture
def folder(tmp_path):
    store = Store(tmp_path)
    for step in (1, 20):
        arrays = {"model/w": lambda: np.ones((2, 3), "float32")}
        job = Job(step, "00000000", 0, 1, arrays, {}, {"mine": 1}, {"tfhvd": "1"}, None)
        Writer(store, job).wait()
    return tmp_path


def test_whole_ones(folder, capsys):
    assert cli.main(["checkpoint", "ls", str(folder)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("step 1: ") and second.startswith("step 20: ")
    assert second.endswith(", 1 ranks, 1 tensors, 0.000 MB")
    assert cli.main(["checkpoint", "show", str(folder)]) == 0
    assert "model/w: float32[2, 3]\nvalues of rank 0: mine\n" in capsys.readouterr().out
    assert cli.main(["checkpoint", "verify", str(folder)]) == 0


def test_damaged_ones(folder, capsys):
    path = folder / "step-00000020" / "shared-0000-of-0001.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert cli.main(["checkpoint", "verify", str(folder)]) == 1
    assert f"step 20: {path} is damaged in the tensor 'model/w'" in capsys.readouterr().out
    assert cli.main(["checkpoint", "verify", str(folder), "--step", "1"]) == 0


def test_wrong_folders(folder, tmp_path, capsys):
    (tmp_path / "file").touch()
    for words, text in (
        ([str(tmp_path / "file")], "is a file"),
        ([str(tmp_path / "none")], "there is no checkpoint in"),
    ):
        assert cli.main(["checkpoint", "ls", *words]) == 2
        assert text in capsys.readouterr().err
    assert cli.main(["checkpoint", "show", str(folder), "--step", "5"]) == 2


def test_it_needs_no_tensorflow(folder):
    program = "import sys; from tfhvd.tools import cli; code = cli.main(sys.argv[1:])\n"
    program += "sys.exit(code or 'tensorflow' in sys.modules)"
    command = [sys.executable, "-c", program, "checkpoint", "verify", str(folder)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
