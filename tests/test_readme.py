"""What the documentation says is true: its code runs, its links and tables are right."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path

import mpi
import pytest
from variants import also

from tfhvd.launch.options.table import make_parser
from tfhvd.settings import markdown, settings

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"

# Runs the pages of a folder one after the other, as programs of their own, where they may write.
RUN_PAGES = """
import os
import runpy
from pathlib import Path

folder = Path({folder!r})
os.chdir(folder)
for page in sorted(folder.glob("*.py")):
    print(page.stem, flush=True)
    runpy.run_path(str(page), run_name="page")
"""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(language: str, page: Path = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), re.M | re.S)


@pytest.mark.parametrize("ranks", [also(1), 2])
def test_main_job(ranks):
    """The training command of the first block, on 2 ranks as it stands and on 1."""
    (command,) = (line for line in blocks("bash")[0].splitlines() if line.startswith("tfhvdrun"))
    launcher, option, number, python, *words = shlex.split(command)
    assert [launcher, option, number, python] == ["tfhvdrun", "-np", "2", "python"]
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
    job = mpi.run_ranks(2, [str(script)], timeout=120, fork=True)
    assert [rank.code for rank in job.ranks] == [0, 0], job


@pytest.mark.parametrize("folder", ["tutorial", also("how-to")])
def test_the_blocks_of_a_page_are_a_program(folder, tmp_path):
    pages = {page.stem: blocks("python", page) for page in (DOCS / folder).glob("*.md")}
    programs = {name: "\n".join(code) for name, code in pages.items() if code}
    for name, program in programs.items():
        (tmp_path / f"{name}.py").write_text(program)
    job = mpi.run_ranks(2, RUN_PAGES.format(folder=str(tmp_path)), timeout=300, fork=True)
    assert [rank.code for rank in job.ranks] == [0, 0], job
    assert set(programs) <= set(job.ranks[0].out.splitlines()), job


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings():
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "cc" / "README.md"]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text_of(page)):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.relative_to(ROOT)} links to {target}"
            assert not anchor or anchor in anchors(file), f"{page.relative_to(ROOT)}: #{anchor}"


def test_every_public_name_is_in_the_reference():
    pages = "".join(map(text_of, (DOCS / "reference").glob("*.md")))
    found = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", pages, re.M)}
    api = text_of(ROOT / "tests" / "public_api.txt")
    names = re.findall(
        r"^tfhvd\.(?:keras\.(?:(?:callbacks|optimizers)\.)?)?(\w+)(?:\(|: (?!module|str))",
        api,
        re.M,
    )
    assert len(names) > 100
    assert not set(names) - found


def test_every_option_of_the_launcher_is_on_its_page():
    page = text_of(DOCS / "reference" / "tfhvdrun.md")
    shown = [option for option in make_parser().options if option.help != argparse.SUPPRESS]
    flags = [flag for option in shown for flag in option.option_strings]
    assert len(flags) > 40
    assert not [flag for flag in flags if not re.search(rf"`{flag}[` ]", page)]


def test_table_of_settings_is_the_table_of_the_code():
    page = text_of(DOCS / "settings.md")
    assert markdown() in page, "type: python -m tfhvd.settings > docs/settings.md"
    assert len(settings()) == len(re.findall(r"^\| `TFHVD_", page, re.M))


def test_the_changes_of_a_version_are_for_users_and_short():
    """What there is, by feature: no list of mistakes that no version had."""
    versions = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert versions and all(len(version.encode()) < 4096 for version in versions)
