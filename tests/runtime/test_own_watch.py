"""Under mpirun the ranks themselves say why the job hangs; under tfhvdrun it alone does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mpi
import network
import pytest
from variants import also

PROGRAM = """
import sys, time
import tfhvd as hvd
hvd.init()
if hvd.rank() == 1:
    time.sleep(float(sys.argv[1]))
hvd.add_process_set([0])
"""
ON_HOSTS = """
import os, signal, sys, time
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")))
os.environ["TFHVD_TEST_HOST"] = sys.argv[1][rank]
import tfhvd as hvd
hvd.init()
"""
FAST = {"TFHVD_STALL_CHECK_TIME_SECONDS": "1"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where jobs run, and leave what they have seen."""
    monkeypatch.chdir(tmp_path)


def test_the_first_rank_that_waits_names_the_odd_one(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(PROGRAM)
    job = mpi.run_ranks(3, [str(script), "8"], env=FAST)
    assert [rank.code for rank in job.ranks] == [0, 0, 0], job
    said = job.ranks[0].err
    assert "Z] warning: the job hangs:\n  A rank waits in its program." in said, job
    assert f" is at {script}:6 in <module>" in said, job
    assert "Ranks 0, 2 wait for add_process_set" in said, job
    assert not any("the job hangs" in job.ranks[number].err for number in (1, 2)), job
    [file] = tmp_path.glob("tfhvd-verdict-*.json")
    assert f"\n  Rank 0 has seen it; all that was seen: {file}" in said, job
    written = json.loads(file.read_text())
    assert (written["kind"], written["ranks"]) == ("waits", [1])
    assert [len(look) for look in written["looks"]] == [3, 3]


# As on a busy machine: when the next rank looks for the first time, it seems to be unable to tell.
WATCHES_LATE = """
import os, time
from tfhvd.runtime.hang_monitor import OwnWatch
run = OwnWatch._run
if int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))) == 0:
    OwnWatch._run = lambda *given: (time.sleep(1.1), run(*given))
"""


@pytest.mark.thorough
def test_the_first_rank_tells_it_alone_though_its_watch_begins_late(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(WATCHES_LATE + PROGRAM)
    job = mpi.run_ranks(3, [str(script), "8"], env=FAST)
    assert [rank.code for rank in job.ranks] == [0, 0, 0], job
    told = [rank.err.count("the job hangs:") for rank in job.ranks]
    assert told == [1, 0, 0], job


@pytest.mark.thorough
def test_a_rank_alone_on_its_host_is_named_by_another_host(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(ON_HOSTS + "if rank == 2:\n    time.sleep(8)\nhvd.add_process_set([0])\n")
    job = mpi.run_ranks(3, [str(script), "aab"], env=FAST)
    assert [rank.code for rank in job.ranks] == [0, 0, 0], job
    said = job.ranks[0].err
    assert "Z] warning: the job hangs:\n  A rank waits in its program." in said, job
    assert "\n  Rank 2 (host b, process " in said and f") is at {script}:8 in <module>" in said, job
    assert "Rank 0 has seen it; all that was seen: " in said, job
    assert not any("the job hangs" in job.ranks[number].err for number in (1, 2)), job


DEADLOCK = """
if rank == 2:
    import ctypes
    lock = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(lock)
"""
STOPS = "if rank == 2:\n    os.kill(os.getpid(), signal.SIGSTOP)\n"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("deed", "said", "kind"),
    [
        (STOPS, "A rank is stopped.", "stopped"),
        also(DEADLOCK, "A rank is held in C code.", "held"),
    ],
)
def test_a_rank_that_cannot_answer_is_seen_from_another_host(tmp_path, deed, said, kind):
    script = tmp_path / "silent.py"
    script.write_text(ON_HOSTS + deed + "hvd.add_process_set([0])\n")
    job = mpi.run_ranks(3, [str(script), "aab"], env={**FAST, "TFHVD_ON_HANG": "abort"})
    assert job.code == 1, job
    assert f"the job hangs:\n  {said}\n  Rank 2 (host b, process " in job.ranks[0].err, job
    [file] = tmp_path.glob("tfhvd-verdict-*.json")
    written = json.loads(file.read_text())
    assert (written["kind"], written["ranks"]) == (kind, [2])
    assert job.left == [], "what has answered for host b ends with its rank"


LARGE = """
import tensorflow as tf
import tfhvd as hvd
hvd.init()
hvd.allreduce(tf.ones(1 << 24), name="large")
"""


@pytest.mark.thorough
def test_data_that_does_not_arrive_in_time_is_told(tmp_path):
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    script = tmp_path / "large.py"
    script.write_text(LARGE)
    with network.hosts(2, network.Link(megabits=100, largest=8000)) as net:
        job = mpi.run_ranks(
            2,
            [str(script)],
            env={**FAST, "TFHVD_ON_HANG": "abort"},
            launcher=net.launcher(1),
            within=net.run_on(0),
        )
    assert job.code == 1, job
    assert "the job hangs:\n  Ranks wait for data of each other.\n" in job.ranks[0].err, job
    [file] = tmp_path.glob("tfhvd-verdict-*.json")
    assert json.loads(file.read_text())["kind"] == "network"


@pytest.mark.thorough
def test_a_stopped_rank_zero_is_named_by_the_next_that_waits(tmp_path):
    script = tmp_path / "stops.py"
    goes_on = "os.system(f'(sleep 8; kill -CONT {os.getpid()}) &')"
    stops = f"if rank == 0:\n    {goes_on}\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
    script.write_text(ON_HOSTS + stops + "hvd.add_process_set([0])\n")
    job = mpi.run_ranks(3, [str(script), "aab"], env=FAST)
    assert [rank.code for rank in job.ranks] == [0, 0, 0], job
    said = job.ranks[1].err
    assert "the job hangs:\n  A rank is stopped.\n  Rank 0 (host a, process " in said, job
    assert not any("the job hangs" in job.ranks[number].err for number in (0, 2)), job


WAITS_DEADLOCKED = """
if rank == 0:
    import ctypes, threading
    threading.Thread(target=hvd.add_process_set, args=([0],), daemon=True).start()
    time.sleep(1)
    lock = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(lock)
elif rank == 2:
    time.sleep(600)
hvd.add_process_set([0])
"""


@pytest.mark.thorough
def test_a_rank_that_waits_but_cannot_speak_leaves_it_to_the_next(tmp_path):
    script = tmp_path / "mute.py"
    script.write_text(ON_HOSTS + WAITS_DEADLOCKED)
    job = mpi.run_ranks(3, [str(script), "aaa"], env={**FAST, "TFHVD_ON_HANG": "abort"})
    assert job.code == 1, job
    assert "the job hangs:\n  A rank waits in its program.\n  Rank 2 (" in job.ranks[1].err, job
    assert "hangs" not in job.ranks[0].err, job


@pytest.mark.thorough
def test_the_job_ends_where_it_is_to(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(PROGRAM)
    job = mpi.run_ranks(3, [str(script), "600"], env={**FAST, "TFHVD_ON_HANG": "abort"})
    assert job.code == 1, job
    said = job.ranks[0].err
    assert "Z] error: the job hangs:\n  A rank waits in its program.\n  Rank 1 (" in said, job
    assert said.count("\n  TFHVD_ON_HANG=abort ends the job\n") == 1, job
    assert len(list(tmp_path.glob("tfhvd-verdict-*.json"))) == 1


@pytest.mark.thorough
def test_a_job_in_which_a_rank_works_is_left_alone(tmp_path):
    script = tmp_path / "works.py"
    works = "end = time.monotonic() + float(sys.argv[1])\n    while time.monotonic() < end: pass"
    script.write_text(PROGRAM.replace("time.sleep(float(sys.argv[1]))", works))
    job = mpi.run_ranks(2, [str(script), "6"], env={**FAST, "TFHVD_ON_HANG": "abort"})
    assert job.code == 0, job
    assert "hangs" not in job.ranks[0].err, job


@pytest.mark.thorough
def test_nothing_is_said_by_ranks_where_tfhvdrun_watches(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(PROGRAM)
    words = ["-m", "tfhvd.launch", "-np", "2", sys.executable, str(script), "6"]
    job = mpi.run_ranks(1, words, env=FAST, mpirun=False)
    assert job.code == 0, job
    assert job.ranks[0].err.count("the job hangs") == 1, job
    assert "tfhvdrun: the job hangs" in job.ranks[0].err


def test_it_ends_with_the_job(tmp_path):
    script = tmp_path / "twice.py"
    script.write_text(
        "import threading\nimport tfhvd as hvd\n"
        "def watches():\n"
        "    return any(t.name == 'tfhvd-watch' for t in threading.enumerate())\n"
        "for _ in range(2):\n"
        "    hvd.init()\n"
        "    assert watches()\n"
        "    hvd.shutdown()\n"
        "    assert not watches()\n"
    )
    job = mpi.run_ranks(2, [str(script)])
    assert [rank.code for rank in job.ranks] == [0, 0], job
