"""Prints how long a program takes to write lines: into `cat` through a pipe, and under tfhvdrun.

    python tests/perf/output.py [MEGABYTES]

A rank whose launcher is slow waits in `write`. Also how long a job of two ranks takes that does
nothing; both without and with --encrypt. Of three times each way the quickest counts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAUNCH = [sys.executable, "-m", "tfhvd.launch"]
WAYS: list[list[str]] = [[], ["--encrypt"]]
PROGRAM = """
import sys, time
megabytes, took = int(sys.argv[1]), sys.argv[2]
line = 60 * "x"
began = time.monotonic()
for _ in range(megabytes * 1_000_000 // 61):
    print(line)
sys.stdout.flush()
with open(took, "w") as file:
    file.write(str(time.monotonic() - began))
"""


def seconds(command: list[str], took: Path) -> float:
    """How long the program took, of three times the quickest."""
    found = []
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            subprocess.run(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL, check=True)
        found.append(float(took.read_text(encoding="utf-8")))
    return min(found)


def job(words: list[str]) -> float:
    """How long a job took."""
    began = time.monotonic()
    subprocess.run([*LAUNCH, *words, "-np", "2", "true"], check=True)
    return time.monotonic() - began


def main() -> None:
    """Prints the times."""
    megabytes = sys.argv[1] if len(sys.argv) > 1 else "20"
    with tempfile.TemporaryDirectory() as folder:
        took = Path(folder) / "took"
        program = [sys.executable, "-c", PROGRAM, megabytes, str(took)]
        plain = seconds(program, took)
        under, encrypted = (
            seconds([*LAUNCH, *words, "-np", "1", *program], took) for words in WAYS
        )
    print(
        f"{megabytes} MB of lines: {plain:.2f} s into cat, {under:.2f} s under tfhvdrun, "
        f"{encrypted:.2f} s with --encrypt"
    )
    without, with_it = (min(job(words) for _ in range(3)) for words in WAYS)
    print(f"a job of two ranks that do nothing: {without:.2f} s, {with_it:.2f} s with --encrypt")


if __name__ == "__main__":
    main()
