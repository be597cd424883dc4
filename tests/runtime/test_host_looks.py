"""Processes beside ranks that answer for their hosts, and who asks them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfhvd.hang import status_query, status_server
from tfhvd.hang.status_query import Watcher
from tfhvd.network import handshake
from tfhvd.runtime.host_monitor import Answers, OtherHosts

ROOT = Path(__file__).resolve().parents[2]

# Stands for a rank: has a process answer for its host, and tells where.
RANK = """
import os, sys, time
from tfhvd.runtime.host_monitor import Answers
answers = Answers()
print(answers.listen(), flush=True)
answers.start()
if sys.argv[1] == "forks" and os.fork() == 0:
    time.sleep(600)  # with the pipe's other end
sys.stdin.read()
answers.close()
"""


@pytest.fixture
def rank():
    """Starts one; it ends when its standard input is closed."""
    started = []

    def start(what=""):
        job = subprocess.Popen(
            [sys.executable, "-c", RANK, what],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(job)
        token, at = job.stdout.readline().strip().split(" ")
        return job, Watcher(at, token, status_server.ABOUT)

    yield start
    for job in started:
        with job, contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)


def answers_within(watcher, seconds):
    """Whether somebody answers there now; waits until nobody does."""
    until = time.monotonic() + seconds
    while _answers(watcher) and time.monotonic() < until:
        time.sleep(0.05)
    return _answers(watcher)


def _answers(watcher):
    port = int(watcher.addresses.rpartition(":")[2])
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_rank_that_is_stopped_still_has_its_host_seen(rank):
    job, watcher = rank()
    assert not status_query.waits(watcher, 1)
    os.kill(job.pid, signal.SIGSTOP)
    # It is no rank of a job, so that none is seen; but the question is answered, by a whole answer.
    at = ("127.0.0.1", int(watcher.addresses.rpartition(":")[2]))
    with socket.create_connection(at) as sock:
        sock.settimeout(10)
        handshake.prove(sock, watcher.token, watcher.about)
        sock.sendall(status_query.messages.frame_json(status_query.messages.FrameKind.STATUS_QUERY))
        assert sock.recv(1000) == status_query.messages.frame(status_query.messages.FrameKind.QUIT)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_what_answers_ends_with_the_rank(rank, end):
    job, watcher = rank()
    assert _answers(watcher)
    if end is None:
        job.stdin.close()
        assert job.wait(30) == 0
        assert not _answers(watcher), "it has ended before the rank has"
    else:
        os.kill(job.pid, end)
        assert not answers_within(watcher, 10)


def test_it_ends_though_a_child_of_the_rank_lives_on(rank):
    job, watcher = rank("forks")
    assert _answers(watcher)
    os.kill(job.pid, signal.SIGKILL)
    assert not answers_within(watcher, 10)


def test_a_later_job_of_a_process_listens_anew():
    answers = Answers()
    before = answers.listen()
    answers.close()
    again = answers.listen()
    assert before.split(" ")[0] != again.split(" ")[0]
    answers.close()
    assert not _answers(Watcher(again.split(" ")[1], ""))


def test_where_no_process_can_be_started_that_is_said(monkeypatch, caplog):
    monkeypatch.setattr(sys, "executable", "/no/python")
    answers = Answers()
    watcher = Watcher(answers.listen().split(" ")[1], "")
    with caplog.at_level(logging.WARNING, "tfhvd"):
        answers.start()
    assert "Cannot start a process that tells other hosts what the ranks" in caplog.text
    assert "No such file" in caplog.text
    assert not _answers(watcher)
    answers.close()


def test_the_first_rank_of_each_host_is_asked():
    def other(rank):
        return OtherHosts([f"token{r} 127.0.0.1:{r + 1}" for r in range(5)], [0, 1, 0, 1, 2], rank)

    assert [other(rank).is_first for rank in range(5)] == [True, True, False, False, True]
    with socket.create_server(("127.0.0.1", 0)) as ended:
        gone = f"secret 127.0.0.1:{ended.getsockname()[1]}"
    assert OtherHosts(["", gone, ""], [0, 1, 1], 0).look() == {}
    assert OtherHosts(["", "", ""], [0, 1, 1], 0).look() == {}
    assert not OtherHosts([gone, "", ""], [0, 1, 1], 1).wait_before(1)
