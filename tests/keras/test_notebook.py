"""The example's notebook runs from its first cell to its last."""

import re

import children
import mpi
import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat, of tests/requirements.txt, is missing")
nbclient = pytest.importorskip("nbclient", reason="nbclient, of tests/requirements.txt, is missing")
pytest.importorskip("ipykernel", reason="ipykernel, of tests/requirements.txt, is missing")


@pytest.mark.thorough
def test_notebook(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", children.python_path())
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(mpi.ROOT / "examples" / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=180, resources=resources).execute()

    printed = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    lines = re.findall(r"rank (\d): accuracy ([0-9.]+), sum of weights ([0-9.]+)", printed)
    assert [rank for rank, _, _ in lines] == ["0", "1"], printed
    assert lines[0][1:] == lines[1][1:]
    assert float(lines[0][1]) >= 0.93
