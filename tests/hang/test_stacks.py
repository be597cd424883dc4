"""The Python stacks of another process: also of one that is deadlocked, and never of a stranger."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import children
import pytest

from tfhvd.system import python_stacks
from tfhvd.tools import dump

pytestmark = pytest.mark.thorough

ANSWERS = """
import ctypes, sys, threading, time
from tfhvd.system import python_stacks
python_stacks.answer()
def up():
    print("up", flush=True)
"""
# A C function waits for ever, with the interpreter's lock: no Python runs in the process any more.
DEADLOCKED = ANSWERS + (
    "def held():\n    lock = ctypes.create_string_buffer(64)\n    up()\n"
    "    for _ in range(2): ctypes.PyDLL(None).pthread_mutex_lock(lock)\nheld()\n"
)
THREADS = ANSWERS + (
    "def other():\n    time.sleep(60)\nthreading.Thread(target=other, daemon=True).start()\n"
    "up()\ntime.sleep(60)\n"
)
STRANGER = 'import time\nprint("up", flush=True)\ntime.sleep(60)\n'


@contextmanager
def running(text: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    path = folder / "program.py"
    path.write_text(text)
    env = children.environment()
    with subprocess.Popen(
        [sys.executable, str(path)], env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


def test_a_deadlocked_process_answers_again_and_again(tmp_path):
    with running(DEADLOCKED, tmp_path) as process:
        while python_stacks.of(process.pid)[0][0].endswith("in up"):
            assert process.poll() is None
        for _ in range(3):
            [thread] = python_stacks.of(process.pid)
            assert thread[0] == python_stacks.NO_PYTHON
            assert thread[1].endswith("program.py:10 in held")
            assert thread[2].endswith("program.py:11 in <module>")
        assert process.poll() is None


def test_the_main_thread_comes_first(tmp_path):
    with running(THREADS, tmp_path) as process:
        main, other = python_stacks.of(process.pid)
        assert main[-1].endswith("in <module>")
        assert python_stacks.NO_PYTHON not in main
        assert any(line.endswith("program.py:8 in other") for line in other)


MANY = (
    ANSWERS
    + "def other():\n    time.sleep(60)\n"
    + "for _ in range(120): threading.Thread(target=other, daemon=True).start()\n"
    + "up()\ntime.sleep(60)\n"
)


def test_the_main_thread_is_there_among_many(tmp_path):
    with running(MANY, tmp_path) as process:
        main, *others = python_stacks.of(process.pid)
        assert main[-1].endswith("in <module>")
        assert len(others) >= 100


# Python runs in several threads, whose frames come and go.
BUSY = (
    ANSWERS
    + """
def deep(n):
    return n and deep(n - 1)
def other():
    while True:
        for n in (1, 50, 3, 70): deep(n)
for _ in range(3): threading.Thread(target=other, daemon=True).start()
up()
while True: time.sleep(0.0001)
"""
)
# C code that holds the interpreter's lock, also while it says that it is up, computes: Python may
# run again at any moment.
COMPUTES = ANSWERS + (
    "from itertools import chain\nup = map(ctypes.PyDLL(None).write, [1], [b'up\\n'], [3])\n"
    "sum(chain(up, range(10**11)))\n"
)


def test_a_process_in_which_python_runs_survives_every_look(tmp_path):
    with running(BUSY, tmp_path) as process:
        for _ in range(30):
            threads = python_stacks.of(process.pid)
            assert threads[0][-1].endswith(" in <module>")
            others = [
                line for thread in threads[1:] for line in thread if line.endswith(" in other")
            ]
            assert len(others) == 3, threads
            assert process.poll() is None


def test_a_process_that_keeps_python_waiting_while_it_computes_is_not_made_to_answer(tmp_path):
    with running(COMPUTES, tmp_path) as process:
        [[line]] = python_stacks.of(process.pid)
        assert line.startswith("no stacks: no answer within 2 s: it computes in C code")
        assert process.poll() is None


def test_a_stopped_process_is_not_asked(tmp_path):
    with running(THREADS, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        [[line]] = python_stacks.of(process.pid)
        assert "is stopped (SIGSTOP)" in line


def test_a_process_that_does_not_expect_it_goes_on(tmp_path):
    with running(STRANGER, tmp_path) as process:
        assert python_stacks.of(process.pid) == [
            ["no stacks: the process does not answer to such questions"]
        ]
        assert process.poll() is None


def test_a_process_that_is_gone():
    [[line]] = python_stacks.of(999_999_999)
    assert line.startswith("no stacks: No such file or directory")


def test_long_stacks_are_shown_in_part():
    lines = [f'  File "t.py", line {number} in f' for number in range(40)]
    threads = python_stacks.parse(
        "\n".join(["Current thread 0x1 (most recent call first):", *lines])
    )
    _, text = dump.describe_stacks({0: threads})
    shown = [line.strip() for line in text.splitlines()]
    assert len(shown) == 15
    assert (shown[0], shown[-1]) == ("t.py:0 in f", "... 26 more")


def test_what_the_main_thread_leaves_with_comes_first():
    text = (
        'Thread 0x1 (most recent call first):\n  File "a.py", line 1 in f\n\n'
        'Thread 0x2 (most recent call first):\n  File "b.py", line 2 in g\nUncaught: ValueError\n'
    )
    assert python_stacks.parse(text) == [["leaves with ValueError", "b.py:2 in g"], ["a.py:1 in f"]]


def test_python_runs_where_the_thread_that_answers_has_written_the_stacks():
    answers = '%shread 0x1 (most recent call first):\n  File "s.py", line 3 in _answer_when_asked\n'
    main = '%shread 0x2 (most recent call first):\n  File "a.py", line 1 in f\n'
    assert python_stacks.parse(answers % "Current t" + main % "T") == [["a.py:1 in f"]]
    held = python_stacks.parse(answers % "T" + main % "Current t" + "Uncaught: ValueError\n")
    assert held == [["leaves with ValueError", python_stacks.NO_PYTHON, "a.py:1 in f"]]


@pytest.mark.parametrize("text", ["", "no thread here", "Uncaught: ValueError"])
def test_what_has_no_threads_has_none(text):
    assert python_stacks.parse(text) == []


def test_ranks_at_one_place_are_named_together_and_who_is_alone_first():
    same = [["a.py:1 in f"], ["b.py:2 in g"]]
    assert dump.describe_stacks({0: same, 1: [["a.py:9 in h"]], 2: same}) == [
        "rank 1, the last call first:",
        "    a.py:9 in h",
        "ranks 0, 2, the last call first:",
        "    a.py:1 in f\n  another thread\n    b.py:2 in g",
    ]
