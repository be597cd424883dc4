"""What the documentation says is true: its code runs, its links and tables are right."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import mpi
import pytest

from tfhvd.settings import markdown, settings

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


@pytest.mark.parametrize("ranks", [1, 2])
def test_main_job(ranks):
    """The training command of the first block, on 2 ranks as it stands and on 1."""
    (command,) = (line for line in blocks("bash")[0].splitlines() if line.startswith("tfhvdrun"))
    starter, option, number, python, *words = shlex.split(command)
    assert [starter, option, number, python] == ["tfhvdrun", "-np", "2", "python"]
    launch = ["-m", "tfhvd.launch", "-np", str(ranks), sys.executable, *words]
    job = mpi.run_ranks(1, launch, timeout=300, mpirun=False)
    assert job.code == 0, job
    found = re.search(r"test accuracy of (\d+) rank\(s\): ([\d.]+)", job.ranks[0].out)
    assert found, job
    assert int(found[1]) == ranks
    assert float(found[2]) >= 0.97
    assert not job.left


def test_blocks_of_commands_are_in_the_promised_order():
    install, test = blocks("bash")
    assert "pip install" in install and "tfhvdrun" in install
    assert "pytest" in test


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_block(number, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(blocks("python")[number])
    job = mpi.run_ranks(2, [str(script)], timeout=120)
    assert [rank.code for rank in job.ranks] == [0, 0], job


def test_links_lead_to_files():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "cc" / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_table_of_settings_is_the_table_of_the_code():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert markdown() in page, "type: python -m tfhvd.settings > docs/settings.md"
    assert len(settings()) == len(re.findall(r"^\| `TFHVD_", page, re.M))
