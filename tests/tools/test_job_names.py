"""What a user may call a job: it is found, or it is said which jobs there are."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import user_messages
from flight_records import record, seen

from tfhvd.hang import init_waiters, local_ranks, snapshot
from tfhvd.launch.errors import UsageError
from tfhvd.system import procfs
from tfhvd.tools import cli, job_names, jobs


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Begins a job of one rank; gives the rank's process."""
    found: list[list[local_ranks.Rank]] = []
    monkeypatch.setattr(local_ranks, "jobs", lambda: found)
    monkeypatch.setattr(init_waiters, "meetings", lambda pid: [])
    with ExitStack() as stack:

        def start(program: str, **environ: str) -> int:
            path = tmp_path / program
            path.write_text("print('up', flush=True)\ninput()\n")
            words = [sys.executable, "-u", str(path), "--epochs", "3"]
            rank = stack.enter_context(
                subprocess.Popen(words, env={**os.environ, **environ}, stdin=-1, stdout=-1)
            )
            stack.callback(rank.kill)
            assert rank.stdout.readline() == b"up\n"
            above = tuple(procfs.above(rank.pid))
            found.append([local_ranks.Rank(rank.pid, above, record(len(found)), Path())])
            return rank.pid

        yield start


def test_a_job_is_known_by_its_program_and_its_batch_number(begin, tmp_path):
    train = begin("train.py", SLURM_JOB_ID="77000001", SLURM_JOB_NAME="resnet")
    other = begin("other.py", PBS_JOBID="77000002.server")
    for name in ("train.py", str(tmp_path / "train.py"), "77000001", "resnet", str(train)):
        assert job_names.process_of(name) == train
    for name in ("other.py", "77000002.server", f"/tmp/tfhvd-verdict-{other}.json"):
        assert job_names.process_of(name) == other
    assert job_names.process_of(None) is None


def test_a_process_of_a_job_is_meant_rather_than_another_jobs_number(begin):
    train = begin("train.py")
    begin("other.py", SLURM_JOB_ID=str(train), SLURM_JOB_NAME=str(os.getpid()))
    assert job_names.process_of(str(train)) == train
    assert job_names.process_of(str(os.getpid())) == os.getpid(), "which has started both"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as stranger:
        third = begin("third.py", SLURM_JOB_ID=str(stranger.pid))
        assert job_names.process_of(str(stranger.pid)) == third
        stranger.kill()


def test_jobs_of_one_name_are_listed(begin, capsys):
    first, second = begin("train.py", SLURM_JOB_ID="77000001"), begin("train.py")
    begin("other.py")
    assert cli.main(["dump", "train.py"]) == 2
    error, *listed = capsys.readouterr().err.splitlines()
    assert error.endswith("2 jobs on this host are called train.py: type the process of one.")
    assert len(listed) == 2
    assert listed[0].startswith(f"  process {first}: ") and "77000001 (rank 0)" in listed[0]
    assert listed[1].startswith(f"  process {second}: ") and "train.py (rank 1)" in listed[1]


def test_what_is_called_otherwise_is_listed(begin):
    pid = begin("train.py")
    with pytest.raises(UsageError, match=r"is called tain\.py\. These run:\n  process") as error:
        job_names.process_of("tain.py")
    assert f"process {pid}: " in str(error.value)
    with pytest.raises(UsageError, match="there is no process 999999999 on this host, and no job"):
        job_names.process_of("999999999")


def test_where_no_job_runs_that_is_said(begin):
    with pytest.raises(UsageError, match="No job of tfhvd runs here, or none that you may look at"):
        job_names.process_of("train.py")


def test_ranks_that_meet_are_found_by_name(begin, monkeypatch):
    pid = begin("train.py")
    monkeypatch.setattr(local_ranks, "jobs", lambda: [])
    waits = init_waiters.Arrival(pid, "S", waits=True, came=True)
    monkeypatch.setattr(init_waiters, "meetings", lambda pid: [{0: waits}])
    assert job_names.process_of("train.py") == pid


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python -m package.train -m", "package.train"),
        ("/usr/bin/python3.11 -X dev -u train.py", "train.py"),
        ("python -c print()", ""),
        ("python", ""),
        ("./train --epochs 3", "./train"),
        ("", ""),
    ],
)
def test_the_program_of_a_command(command, program):
    assert job_names.program_of(command.split()) == program


def test_of_several_jobs_it_is_said_which_is_which(begin, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(local_ranks.Rank, "again", lambda rank: rank)
    monkeypatch.setattr(jobs, "_launchers", lambda pid: [])  # those of other tests
    monkeypatch.setattr(snapshot, "take", lambda pid, noted: seen(noted.rank))
    user = pwd.getpwuid(os.geteuid()).pw_name
    first = begin("train.py")
    for word in ("dump", "why"):
        cli.main([word, *(["--seconds", "0.1"] if word == "why" else [])])
        assert "Job " not in capsys.readouterr().out, "one alone needs no name"
    second = begin("other.py")
    before = time.strftime("%F %T", time.localtime(time.time() + 2))
    for words in (["dump"], ["why", "--seconds", "0.1"]):
        cli.main(words)
        said = capsys.readouterr().out
        user_messages.check("one of several jobs", said)
        for program, pid in (("train.py", first), ("other.py", second)):
            head = rf"^Job {tmp_path}/{program} \(process {pid}, user {user}, since ([-:\d ]+)\):$"
            assert re.search(head, said, re.M)[1] <= before
    cli.main(["why", "--seconds", "0.1", "--json"])
    answers = json.loads(capsys.readouterr().out)
    assert [answer["job"]["process"] for answer in answers] == [first, second]
    assert {answer["job"]["user"] for answer in answers} == {user}


def test_what_is_not_known_of_a_job_is_said():
    gone = subprocess.Popen(["true"])
    gone.wait()
    about = job_names.About.of(gone.pid)
    assert str(about) == f"a program (process {gone.pid}, user unknown, since unknown)"
    assert job_names.headings([about, None])[1] == ("Job without a rank on this host:",)
