"""Signals, and deaths from outside: the job ends within seconds and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import children
import pytest
from launching import launch, script, started, wait_until_gone
from variants import also

UP = 'subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", __file__])\n'
# In one piece: on a busy machine an unfinished line may be shown first, and then again.
READY = 'print("up\\n", end="", flush=True)\n'
MPI = "from mpi4py import MPI\nworld, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.rank\n"


def wait_for_lines(stream, count: int) -> list[str]:
    return [stream.readline() for _ in range(count)]


SEGMENTS = """
maps = {line.split()[-1] for line in open("/proc/self/maps") if "/dev/shm/" in line}
print(*maps, flush=True)
"""


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "SIGINT"), also(signal.SIGTERM, "SIGTERM")]
)
def test_a_signal_ends_the_job_and_leaves_nothing(tmp_path, number, name):
    path = script(tmp_path, MPI + UP + SEGMENTS + "time.sleep(60)\n")
    folder = tmp_path / "tmp"
    folder.mkdir()
    with started("-np", 2, sys.executable, path, TMPDIR=str(folder)) as process:
        segments = [word for line in wait_for_lines(process.stdout, 2) for word in line.split()[1:]]
        process.send_signal(number)
        _, err = process.communicate(timeout=15)
    assert process.returncode == 128 + number
    assert err.splitlines()[-1] == f"tfhvdrun: stopped by {name}"
    if number == signal.SIGINT:
        assert err.count("(most recent call last)") >= 2, "each rank was interrupted"
    assert wait_until_gone(str(path)) == []
    assert list(folder.iterdir()) == []
    assert [name for name in segments if Path(name).exists()] == []


def test_ranks_that_ignore_ctrl_c_are_killed_and_a_second_one_kills_at_once(tmp_path):
    deaf = "for n in (2, 15): signal.signal(n, signal.SIG_IGN)\n" + READY + "time.sleep(60)\n"
    path = script(tmp_path, deaf)
    with started("--stop-timeout", 1, "-np", 2, sys.executable, path) as process:
        wait_for_lines(process.stdout, 2)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=15)
    assert process.returncode == 130 and wait_until_gone(str(path)) == []
    with started("--stop-timeout", 600, "-np", 2, sys.executable, path) as process:
        wait_for_lines(process.stdout, 2)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=15)
    assert process.returncode in (129, 130) and wait_until_gone(str(path)) == []


SAVE = """
def save(*_):
    time.sleep(1.5)
    open(f"{__file__}.{os.getpid()}", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
"""


def test_ranks_have_time_to_save_when_the_job_is_told_to_end(tmp_path):
    path = script(tmp_path, SAVE + READY + "time.sleep(60)\n")
    words = ("--stop-timeout", 0.2, "--grace", 20, "--max-restarts", 3)
    with started(*words, "-np", 2, sys.executable, path) as process:
        wait_for_lines(process.stdout, 2)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert err.splitlines() == [
        "tfhvdrun: SIGTERM: the ranks have 20 s to end by themselves",
        "tfhvdrun: stopped by SIGTERM",
    ]
    assert process.returncode == 143
    assert len(list(tmp_path.glob("script.py.*"))) == 2
    assert wait_until_gone(str(path)) == []


def test_ranks_have_time_to_save_when_their_agents_are_told_to_end(tmp_path):
    """As by a batch system that signals all processes of a host."""
    tells = 'print(f"{os.getppid()}\\n", end="", flush=True)\n'
    path = script(tmp_path, SAVE.replace("1.5", "3") + tells + "time.sleep(60)\n")
    with started("--no-prefix", "-np", 2, sys.executable, path) as process:
        for agent in wait_for_lines(process.stdout, 2):
            os.kill(int(agent), signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert len(list(tmp_path.glob("script.py.*"))) == 2
    assert wait_until_gone(str(path)) == []


def test_ranks_that_do_not_end_in_that_time_are_killed(tmp_path):
    path = script(tmp_path, SAVE + READY + "time.sleep(60)\n")
    with started("--grace", 0.3, "-np", 2, sys.executable, path) as process:
        wait_for_lines(process.stdout, 2)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 143
    assert list(tmp_path.glob("script.py.*")) == []
    assert wait_until_gone(str(path)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("words", [(), also(("--elastic",))])
@pytest.mark.parametrize("behind", ["", also("a shell")])
def test_a_rank_that_is_stopped_is_told_at_once_and_that_it_goes_on(tmp_path, words, behind):
    path = script(
        tmp_path,
        """
import tfhvd as hvd
hvd.init()
if hvd.rank() == 1: os.kill(os.getpid(), signal.SIGSTOP)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
""",
    )
    start = tmp_path / "start.sh"
    start.write_text(f"{sys.executable} {path} $1\nexit $?\n")
    command = ("bash", start) if behind else (sys.executable, path)
    with started(*words, "-np", 2, *command, tmp_path / "seen") as process:
        told = next(line for line in process.stderr if line.startswith("tfhvdrun:"))
        found = re.fullmatch(
            r"tfhvdrun: rank 1 on host \S+ is stopped \(SIGSTOP\), and the other ranks wait for "
            r"it; to let it continue, type on that host: kill -CONT (\d+)\n",
            told,
        )
        assert found, told
        os.kill(int(found[1]), signal.SIGCONT)
        told = next(line for line in process.stderr if line.startswith("tfhvdrun:"))
        assert re.search("rank 1 on host .* continues; it was stopped for about", told)
        (tmp_path / "seen").touch()
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert wait_until_gone(str(path)) == []


@pytest.mark.thorough
def test_a_stopped_rank_is_killed_once_another_has_failed(tmp_path):
    path = script(
        tmp_path,
        MPI
        + "world.Barrier()\nif rank == 1: os.kill(os.getpid(), signal.SIGSTOP)\n"
        + "time.sleep(0.5)\nos._exit(4)\n",
    )
    result = launch("--stop-timeout", 1, "-np", 2, sys.executable, path)
    assert result.code == 137, result.err
    assert result.own_lines[0].startswith("tfhvdrun: rank 1 on host ")
    assert "stopped (SIGSTOP), and killed" in result.own_lines[0]
    assert wait_until_gone(str(path)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("hosts", ["aa", also("aab")])
def test_a_stopped_rank_is_killed_once_another_has_waited_for_it_at_its_end(tmp_path, hosts):
    """Behind a shell, so that it is not the agent's own child that is stopped."""
    path = script(
        tmp_path,
        f"""
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
os.environ["TFHVD_TEST_HOST"] = "{hosts}"[rank]
import tfhvd as hvd
hvd.init()
if rank == {len(hosts) - 1}: os.kill(os.getpid(), signal.SIGSTOP)
""",
    )
    start = tmp_path / "start.sh"
    start.write_text(f"{sys.executable} {path}\nexit $?\n")
    result = launch(
        *("-np", len(hosts), "--stop-timeout", 2, "--stall-check-shutdown-time-seconds", 1),
        *("bash", start),
    )
    assert result.code == 137, result.err
    assert result.own_lines[0].startswith(f"tfhvdrun: rank {len(hosts) - 1} on host ")
    assert "stopped (SIGSTOP), and killed" in result.own_lines[0]
    assert wait_until_gone(str(path)) == []


def test_a_user_signal_reaches_every_rank(tmp_path):
    path = script(
        tmp_path,
        "told = []\nsignal.signal(signal.SIGUSR1, lambda *_: told.append(1))\n"
        + READY
        + 'while not told: time.sleep(0.02)\nprint("told\\n", end="")\n',
    )
    with started("-np", 2, sys.executable, path) as process:
        wait_for_lines(process.stdout, 2)
        process.send_signal(signal.SIGUSR1)
        out, _ = process.communicate(timeout=15)
    assert process.returncode == 0
    assert sorted(out.splitlines()) == ["[0] told", "[1] told"]


def test_when_the_launcher_is_killed_everything_ends(tmp_path):
    path = script(tmp_path, UP + READY + "time.sleep(60)\n")
    with started("-np", 2, sys.executable, path) as process:
        wait_for_lines(process.stdout, 2)
        process.kill()
        process.wait(10)
    assert wait_until_gone(str(path)) == []


def test_when_a_agent_is_killed_its_rank_dies_and_the_job_ends(tmp_path):
    path = script(tmp_path, "print(os.getppid(), flush=True)\ntime.sleep(60)\n")
    with started("-np", 2, sys.executable, path) as process:
        agent = int(wait_for_lines(process.stdout, 2)[0].split()[1])
        os.kill(agent, signal.SIGKILL)
        _, err = process.communicate(timeout=20)
    assert process.returncode not in (0, None)
    assert "tfhvdrun: rank " in err
    assert wait_until_gone(str(path)) == []


def test_when_mpirun_is_killed_the_report_says_so(tmp_path):
    path = script(tmp_path, READY + "time.sleep(60)\n")
    folder = tmp_path / "tmp"
    folder.mkdir()
    with started("-np", 2, sys.executable, path, TMPDIR=str(folder)) as process:
        wait_for_lines(process.stdout, 2)
        os.kill(children.of(process.pid)[0], signal.SIGKILL)
        _, err = process.communicate(timeout=20)
    assert process.returncode not in (0, None)
    assert "tfhvdrun: mpirun was killed by SIGKILL" in err
    assert list(folder.iterdir()) == []
    assert wait_until_gone(str(path)) == []


def test_what_a_killed_launcher_leaves_stops_no_later_one(tmp_path):
    """Open MPI names its files by mpirun's process id, and fails where another's are there."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    path = script(tmp_path, READY + "time.sleep(60)\n")
    with started("-np", 1, sys.executable, path, TMPDIR=str(folder)) as process:
        wait_for_lines(process.stdout, 1)
        process.kill()
        process.wait(10)
    assert wait_until_gone(str(path)) == []
    assert [entry.name for entry in folder.iterdir() if entry.name.startswith("ompi")] == []


def test_a_reader_that_goes_away_ends_the_job(tmp_path):
    path = script(tmp_path, 'while True: print("line"); time.sleep(0.01)\n')
    with started("-np", 1, sys.executable, path) as process:
        wait_for_lines(process.stdout, 3)
        process.stdout.close()
        assert process.wait(15) == 128 + signal.SIGPIPE
        process.stdout = None
    assert wait_until_gone(str(path)) == []
