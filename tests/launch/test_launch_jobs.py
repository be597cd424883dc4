"""Real jobs of 2 and 4 ranks: output, exit codes, and the report of a failure."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys

import pytest
from children import ROOT
from launching import launch, script, wait_until_gone
from variants import also

from tfhvd.launch.cli import agent_words
from tfhvd.launch.placement import environment

RANK = 'rank = int(os.environ["OMPI_COMM_WORLD_RANK"])\n'
MPI = "from mpi4py import MPI\nworld, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.rank\n"


def test_mpi_works_and_each_line_has_its_rank(tmp_path):
    path = script(
        tmp_path,
        MPI
        + 'print(f"rank {rank} of {world.size}\\n", end="")\n'
        + 'print("oops\\n", end="", file=sys.stderr)\n',
    )
    for size in (1, 4):  # four: more than a small machine has cores
        result = launch("-np", size, sys.executable, path)
        assert result.code == 0, result.err
        expected = [f"[{rank}] rank {rank} of {size}" for rank in range(size)]
        assert sorted(result.out.splitlines()) == expected
        assert sorted(result.err.splitlines()) == [f"[{rank}] oops" for rank in range(size)]


def test_verbose_prints_the_line_and_no_prefix_means_none(tmp_path):
    result = launch("-v", "--no-prefix", "-np", 2, "--env", "COLOUR=blue", "printenv", "COLOUR")
    assert (result.code, result.out) == (0, "blue\nblue\n")
    line = result.own_lines[0]
    assert "mpirun -np 2 " in line and line.endswith("agent.py printenv COLOUR")


def test_settings_arrive_and_the_launchers_own_variables_do_not(tmp_path):
    path = script(tmp_path, 'print(sorted(n for n in os.environ if n.startswith("TFHVD")))')
    result = launch("-np", 1, "--cycle-time-ms", 3, sys.executable, path)
    assert result.out == "[0] ['TFHVD_CYCLE_TIME']\n", result.err


def test_ranks_are_not_told_where_mpirun_keeps_its_files(tmp_path):
    """Open MPI 4 tells them itself, and they refuse to start where they hear it twice."""
    names = environment.FOLDERS_OF_MPIRUN
    assert {"PRTE_MCA_prte_local_tmpdir_base", "OMPI_MCA_orte_local_tmpdir_base"} == set(names)
    path = script(tmp_path, f"print([name for name in {names} if name in os.environ])")
    result = launch("-np", 1, sys.executable, path)
    assert (result.code, result.out) == (0, "[0] []\n"), result.err


def test_long_output_of_two_ranks_is_never_torn(tmp_path):
    path = script(
        tmp_path,
        RANK + 'for n in range(2000): print(n, chr(97 + rank) * (n % 300))\nprint("end", end="")\n',
    )
    result = launch("-np", 2, sys.executable, path)
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    for rank, letter in enumerate("ab"):
        mine = [line for line in lines if line.startswith(f"[{rank}] ")]
        whole = [f"[{rank}] {n} {letter * (n % 300)}" for n in range(2000)] + [f"[{rank}] end"]
        for line in mine:  # on a busy machine an unfinished line may be shown first, then whole
            assert whole[0].startswith(line)
            if line == whole[0]:
                del whole[0]
        assert whole == []


def test_output_goes_to_files_too(tmp_path):
    path = script(tmp_path, RANK + 'print("out", rank)\nprint("err", rank, file=sys.stderr)\n')
    result = launch("-np", 2, "--output-filename", tmp_path / "logs", sys.executable, path)
    assert result.code == 0 and "[1] out 1" in result.out
    assert (tmp_path / "logs/rank.1/stdout").read_text() == "out 1\n"
    assert (tmp_path / "logs/rank.0/stderr").read_text() == "err 0\n"


SPEAK = RANK + 'print("out", rank, flush=True)\nprint("err", rank, file=sys.stderr)\n'


def test_only_one_ranks_output_is_shown(tmp_path):
    path = script(tmp_path, SPEAK + "if rank == 1: sys.exit(7)\n")
    result = launch("-np", 2, "--output", "rank0", sys.executable, path)
    assert result.out == "[0] out 0\n"
    assert result.err.startswith("[0] err 0\ntfhvdrun: rank 1 on host ")
    assert result.own_lines[-1] == "    err 1", "who fails is shown whoever it is"


def test_output_goes_to_one_file_a_rank_instead(tmp_path):
    path = script(tmp_path, SPEAK)
    folder = tmp_path / "logs"
    result = launch("-np", 2, "--output", folder, sys.executable, path)
    assert (result.code, result.out) == (0, "")
    assert result.err == f"tfhvdrun: the ranks' output goes to {folder}/rank.*.log\n"
    assert sorted(file.name for file in folder.iterdir()) == ["rank.0.log", "rank.1.log"]
    for rank in (0, 1):
        lines = (folder / f"rank.{rank}.log").read_text().splitlines()
        assert sorted(lines) == [f"err {rank}", f"out {rank}"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    result = launch("-np", 1, "--output", tmp_path / "file", "true")
    assert result.code == 2
    assert result.err.startswith(f"tfhvdrun: error: cannot write to --output {tmp_path}/file: ")


def test_each_line_begins_with_the_time(tmp_path):
    path = script(tmp_path, SPEAK + "if rank == 1: sys.exit(7)\n")
    folder = tmp_path / "logs"
    words = ("--timestamps", "--output-filename", folder)
    result = launch("-np", 2, *words, sys.executable, path)
    for text in (result.out, result.err, (folder / "rank.1/stderr").read_text()):
        assert re.fullmatch(r"(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} .+\n)+", text), text
    assert re.search(r"\d \[1\] out 1\n", result.out)
    assert re.search(r"\d tfhvdrun: rank 1 on host ", result.err)


def test_tensorflows_startup_lines_are_rank_0s_unless_v_says_otherwise(tmp_path):
    line = "2026-01-31 12:00:00.1: I tensorflow/core/util/port.cc:153] oneDNN"
    path = script(tmp_path, f'sys.stderr.write("{line}\\nmine\\n")\n')
    result = launch("-np", 2, sys.executable, path)
    assert sorted(result.err.splitlines()) == [f"[0] {line}", "[0] mine", "[1] mine"]
    result = launch("-np", 2, "-v", sys.executable, path)
    assert f"[1] {line}" in result.err.splitlines()


def test_an_exception_is_the_last_word(tmp_path):
    path = script(
        tmp_path,
        RANK + 'if rank == 1: raise ValueError("no such digit")\ntime.sleep(60)\n',
    )
    result = launch("-np", 2, sys.executable, path)
    assert result.code == 1
    own = result.own_lines
    assert own[0].startswith("tfhvdrun: rank 1 on host ") and own[0].endswith(": exit code 1")
    assert own[1] == "tfhvdrun: its last lines:"
    assert own[2] == "    Traceback (most recent call last):"
    assert own[-1] == "    ValueError: no such digit"
    assert wait_until_gone(str(path)) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("size", "end", "code", "says"),
    [
        also(4, "os.kill(os.getpid(), signal.SIGKILL)", 137, "killed by SIGKILL"),
        (2, "os._exit(7)", 7, "exit code 7"),
        also(2, "world.Abort(5)", 5, "exit code 5"),
    ],
)
def test_the_first_failure_of_an_mpi_job_ends_it(tmp_path, size, end, code, says):
    path = script(
        tmp_path,
        f"{MPI}world.Barrier()\nif rank == 1: {end}\nworld.Barrier()\ntime.sleep(60)\n",
    )
    result = launch("-np", size, sys.executable, path)
    assert result.code == code, result.err
    assert result.own_lines[0].startswith("tfhvdrun: rank 1 on host ")
    assert says in result.own_lines[0]
    assert wait_until_gone(str(path)) == []


@pytest.mark.parametrize("first", [also(0), 1])
def test_the_exit_code_is_of_who_failed_first_though_others_ended_before(tmp_path, first):
    path = script(
        tmp_path,
        f"""
import tfhvd as hvd
hvd.init()
if hvd.rank() == {first}:
    sys.exit(3)  # and waits for the other one
hvd.add_process_set([0, 1])
""",
    )
    result = launch("-np", 2, sys.executable, path)
    assert result.code == 3, result.err
    assert f"rank {first} (host" in result.err, "the other one says who has left"
    assert result.own_lines[0].startswith(f"tfhvdrun: rank {first} on host ")
    assert result.own_lines[0].endswith("failed first: exit code 3")


FAILS_TWICE = (
    RANK
    + """
count = os.environ["TFHVD_RESTART_COUNT"]
print(f"{rank} {count}\\n", end="")
if rank == 1 and count != "2": sys.exit(5)
"""
)


def test_a_job_that_fails_is_started_again(tmp_path):
    path = script(tmp_path, FAILS_TWICE)
    logs = tmp_path / "logs"
    words = ("--max-restarts", 3, "--output-filename", logs, "--no-prefix")
    result = launch("-np", 2, *words, sys.executable, path)
    assert result.code == 0, result.err
    assert (logs / "rank.1/stdout").read_text() == "1 0\n1 1\n1 2\n", "files keep what was before"
    assert {"1 0", "1 1", "1 2"} <= set(result.out.splitlines())
    again = [line for line in result.err.splitlines() if "started again" in line]
    assert again == [
        f"tfhvdrun: the job failed with exit code 5 and is started again ({count} of 3)"
        for count in (1, 2)
    ]
    assert wait_until_gone(str(path)) == []


def test_a_job_is_not_started_again_more_often_than_wanted(tmp_path):
    path = script(tmp_path, FAILS_TWICE)
    result = launch("-np", 2, "--max-restarts", 1, sys.executable, path)
    assert result.code == 5
    assert result.err.count("is started again") == 1
    assert result.err.count("failed first: exit code 5") == 2


def test_a_death_is_known_before_its_output_is_drained(tmp_path):
    """A child of the rank holds its output open, so that its end is told late."""
    path = script(
        tmp_path,
        RANK
        + """
import pathlib
dead = pathlib.Path(__file__).with_name("dead")
if rank == 1:
    subprocess.Popen(["sleep", "60"])
    dead.write_text(f"{os.getpid()}\\n")
    os.kill(os.getpid(), signal.SIGKILL)
while not dead.exists() or not dead.read_text().endswith("\\n"):
    time.sleep(0.01)
state = pathlib.Path(f"/proc/{dead.read_text().strip()}/stat")
while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
    time.sleep(0.01)
time.sleep(0.2)
os._exit(1)
""",
    )
    result = launch("-np", 2, sys.executable, path)
    assert result.code == 137, result.err
    assert "rank 1 on host" in result.own_lines[0]


def test_survivors_may_still_say_what_they_saw(tmp_path):
    path = script(
        tmp_path,
        MPI + "if rank == 1: os._exit(3)\n"
        'time.sleep(0.5)\nprint("rank 1 is gone", flush=True)\nos._exit(4)\n',
    )
    result = launch("-np", 2, sys.executable, path)
    assert result.code == 3
    assert result.out == "[0] rank 1 is gone\n"
    assert "rank 1 on host" in result.own_lines[0]


def test_a_rank_may_end_early_with_0_even_without_finalize(tmp_path):
    path = script(
        tmp_path,
        MPI
        + 'if rank == 1: os._exit(0)\ntime.sleep(0.7)\nprint("done", flush=True)\nos._exit(0)\n',
    )
    result = launch("-np", 2, sys.executable, path)
    assert (result.code, result.out, result.err) == (0, "[0] done\n", "")


def test_what_a_rank_leaves_running_is_ended(tmp_path):
    link = tmp_path / "sleep-of-this-test"
    link.symlink_to("/bin/sleep")
    path = script(tmp_path, f"subprocess.Popen(['setsid', {str(link)!r}, '600'])\n")
    result = launch("-np", 2, sys.executable, path)
    assert result.code == 0, result.err
    assert wait_until_gone(str(link)) == []


def test_a_command_that_cannot_start_says_so(tmp_path):
    path = tmp_path / "odd"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    result = launch("-np", 2, path)
    assert result.code == 127
    assert f"cannot start '{path}': No such file or directory" in result.own_lines[0]


def test_when_mpirun_fails_its_own_words_are_shown():
    result = launch("-np", 2, "--mpi-args=--no-such-option", "true")
    assert result.code not in (0, 2)
    assert "no-such-option" in result.err
    assert "before 2 of 2 ranks had started" in result.own_lines[-1]


@pytest.mark.thorough
def test_ranks_that_do_not_start_in_time(tmp_path):
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nsleep 600\n")
    ssh.chmod(0o755)
    agent = f"--mpi-args=--prtemca plm_ssh_agent {ssh}"
    result = launch("-np", 1, "-H", "far.invalid:1", agent, "--start-timeout", 1, "true")
    assert result.code == 1
    assert "1 of 1 ranks have not started after 1 s (rank 0)" in result.own_lines[-1]
    assert wait_until_gone(str(ssh)) == []


def test_a_rank_that_reads_its_input_meets_the_end_at_once():
    result = launch("-np", 2, "cat")
    assert (result.code, result.out) == (0, "")


def test_the_agent_alone_is_the_command():
    """So that the line that -v prints can be typed by hand."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TFHVDRUN")}
    words = [*agent_words(), "echo", "hello"]
    answer = subprocess.run(words, env=env, capture_output=True, text=True, timeout=30, check=True)
    assert answer.stdout == "hello\n"


def test_nothing_of_the_launcher_loads_tensorflow():
    code = (
        "import sys; import tfhvd.launch.cli, tfhvd.launch.agent.agent; "
        "sys.exit(bool({'tensorflow', 'numpy', 'keras', 'mpi4py'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=30, check=True)
