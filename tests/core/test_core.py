"""Builds the C++ tests of the core and runs each program: the core alone, no TensorFlow, no MPI.

`SANITIZE=thread` or `SANITIZE=address` in the environment builds and runs them with that sanitizer.
`MACHINE=aarch64` builds them for that processor, and runs them under QEMU where it is not this one.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from build_tools.machine import named

pytestmark = pytest.mark.thorough

PROGRAMS = sorted(path.stem for path in Path(__file__).parent.glob("*_test.cc"))
SANITIZE = os.environ.get("SANITIZE", "")
MACHINE = named(os.environ.get("MACHINE", platform.machine()))
# Debian's cross-compiler brings the libraries of that machine along.
EMULATOR = [f"qemu-{MACHINE.name}-static", "-L", f"/usr/{MACHINE.triplet}"]
SECONDS = 1200 if SANITIZE or not MACHINE.is_here else 300
AT_ONCE = 2  # programs wait more than they compute
# What asks for more memory than there is gets none, as without a sanitizer.
ENDING = "halt_on_error=0:exitcode=66:allocator_may_return_null=1"
# ThreadSanitizer takes new pages for its record of a large piece of memory that is allocated. A
# page that is read before it is written costs two faults and an interrupt of every processor,
# which was half of the time of the tests of collectives. Smaller pieces have their record
# overwritten.
KEEP_PAGES = "clear_shadow_mmap_threshold=1073741824"


def test_there_are_programs():
    assert PROGRAMS


@pytest.fixture(scope="session")
def runs(
    request: pytest.FixtureRequest, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[subprocess.CompletedProcess[bytes]]]]:
    """The run of each program that is asked for, by its name."""
    items = [item for item in request.session.items if "runs" in getattr(item, "fixturenames", ())]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            yield {
                name: pool.submit(run, programs / name, tmp_path_factory.mktemp(name))
                for name in [item.callspec.params["program"] for item in items]
            }
        finally:
            pool.shutdown(cancel_futures=True)


def run(program: Path, folder: Path) -> subprocess.CompletedProcess[bytes]:
    command = [*([] if MACHINE.is_here else EMULATOR), str(program)]
    if SANITIZE == "thread" and shutil.which("setarch"):
        # ThreadSanitizer wants memory where it expects it; newer kernels spread it further.
        command = ["setarch", "-R", *command]
    # As in a fresh terminal: what a job of MPI around the tests says is not for these programs.
    kept = ("OMPI_", "PMI", "PRTE_", "TFHVD_", "HOROVOD_", "SLURM_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(kept)}
    environ |= {"TSAN_OPTIONS": f"{ENDING}:{KEEP_PAGES}", "ASAN_OPTIONS": ENDING}
    return subprocess.run(
        command,
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_passes(runs: dict[str, Future[subprocess.CompletedProcess[bytes]]], program: str):
    ran = runs[program].result()
    output = ran.stdout.decode(errors="replace")
    assert ran.returncode == 0, f"{program} ended with {ran.returncode}:\n{output[-12000:]}"
    assert "0 failed" in output, output[-2000:]
