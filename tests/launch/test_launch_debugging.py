"""tfhvdrun --pdb: one rank has our stdin, and breakpoint() stops no other."""

from __future__ import annotations

import os
import pty
import selectors
import subprocess
import sys
import time

import pytest
from launching import TFHVDRUN, environment, launch, script, wait_until_gone

from tfhvd.launch.stdio.debugger_stdin import (
    InputSender,
    InputWriter,
    launcher_variables,
    rank_variables,
)
from tfhvd.protocol import messages

PROGRAM = """
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
breakpoint()
print(f"end {rank}\\n", end="")
"""


def debug(*words: object, given: str) -> subprocess.CompletedProcess[str]:
    line = [*TFHVDRUN, *map(str, words)]
    return subprocess.run(
        line, env=environment(), input=given, capture_output=True, text=True, timeout=60
    )


def test_a_breakpoint_stops_the_chosen_rank_only(tmp_path):
    path = script(tmp_path, PROGRAM)
    result = debug("--pdb", 1, "-np", 2, sys.executable, path, given="p rank * 10\nc\n")
    assert result.returncode == 0, result.stderr
    assert "[1] (Pdb) 10\n" in result.stdout
    assert "[0] end 0\n" in result.stdout and "end 1\n" in result.stdout
    assert "[0] (Pdb)" not in result.stdout


def test_in_a_terminal(tmp_path):
    path = script(tmp_path, PROGRAM)
    ours, theirs = pty.openpty()
    line = [*TFHVDRUN, "--pdb", "0", "-np", "2", sys.executable, str(path)]
    job = subprocess.Popen(line, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        for sign, answer in ((b"[0] (Pdb) ", b"p 6 * 7\n"), (b"42", b"c\n"), (b"end 0", b"")):
            deadline = time.monotonic() + 60
            while sign not in said:
                assert time.monotonic() < deadline, said
                said += os.read(ours, 4096)
            os.write(ours, answer)
        job.wait(30)
    finally:
        job.kill()
        job.wait()
        os.close(ours)
    assert job.returncode == 0, said
    assert wait_until_gone(str(path)) == []


def test_input_that_is_a_file_and_its_end(tmp_path):
    given = tmp_path / "given"
    given.write_text("x" * 100_000)
    with given.open("rb") as file:
        job = subprocess.run(
            [*TFHVDRUN, "--pdb", "1", "-np", "2", "wc", "-c"],
            env=environment(),
            stdin=file,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert sorted(job.stdout.splitlines()) == ["[0] 0", "[1] 100000"], job.stderr


def test_a_rank_that_does_not_read_holds_up_nobody(tmp_path):
    path = script(tmp_path, 'time.sleep(0.5)\nprint("end")\n')
    result = debug("--pdb", 0, "-np", 1, sys.executable, path, given="x" * 1_000_000)
    assert (result.returncode, result.stdout) == (0, "[0] end\n"), result.stderr


def test_a_rank_that_there_is_not():
    result = launch("--pdb", 2, "-np", 2, "true")
    assert result.code == 2
    assert "--pdb 2 names a rank that this job has not. Its ranks are 0 to 1" in result.err


def test_variables():
    assert launcher_variables(None, {}) == {}
    job = launcher_variables(3, {})
    assert job["TFHVD_STALL_CHECK_DISABLE"] == "1"
    assert launcher_variables(3, {"TFHVD_STALL_CHECK_DISABLE": "0"}).keys() < job.keys()
    assert rank_variables(3, job) == {}
    assert rank_variables(1, job) == {"PYTHONBREAKPOINT": "0"}
    assert rank_variables(1, {}) == {}


@pytest.mark.parametrize("early", [True, False])
def test_what_came_before_the_rank_is_sent_to_it(early):
    read, write = os.pipe()
    sent: list[bytes] = []
    with selectors.DefaultSelector() as select:
        sender = InputSender(select, read)
        os.write(write, b"abc")
        if early:
            select.select(1)[0][0].data()
        sender.to(sent.append)
        if not early:
            select.select(1)[0][0].data()
        os.close(write)
        select.select(1)[0][0].data()
        sender.stop()
        sender.stop()
    os.close(read)
    assert sent == [
        messages.frame(messages.FrameKind.INPUT, b"abc"),
        messages.frame(messages.FrameKind.INPUT),
    ]


def test_input_is_written_as_it_is_read():
    read, write = os.pipe()
    pipe = os.fdopen(write, "wb", buffering=0)
    got = b""
    with selectors.DefaultSelector() as select, os.fdopen(read, "rb", buffering=0) as reader:
        writer = InputWriter(select, pipe)
        writer.feed(b"x" * 200_000)
        writer.feed(b"")
        while select.get_map():
            for key, _ in select.select(0):
                key.data()
            got += reader.read(1 << 16)
    assert got == b"x" * 200_000 and pipe.closed
