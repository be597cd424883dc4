"""A rank that ends without a word of its own: tfhvdrun says how, and what it was doing."""

from __future__ import annotations

import re
import subprocess
import sys

import control_groups
import pytest
import troubleshooting
import user_messages
from launching import environment, launch, script
from variants import also, first_of

from tfhvd.runtime import exit_handler

INIT = "import threading, tfhvd as hvd\nhvd.init()\nrank = hvd.rank()\n"
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
OTHERS = "else:\n    hvd.add_process_set([0, 1])\n"
ASLEEP = "else:\n    time.sleep(60)\n"
DIE_WAITING = f"""
from tfhvd.hang import flight_record
from tfhvd.runtime.native import load_native

def die_waiting():
    while flight_record.read(load_native().flight_record()).submitted == 0:
        time.sleep(0.01)
    {KILL}

if rank == 0:
    threading.Thread(target=die_waiting).start()
    hvd.add_process_set([0, 1])
"""
EATS = """import tfhvd as hvd, tensorflow as tf
hvd.init()
@tf.function
def step(x):
    return hvd.allreduce(x, name="grad")
for _ in range(100):
    step(tf.ones([1000]))
taken = []
while hvd.rank() == 1:
    taken.append(bytes([1]) * (50 << 20))
hvd.add_process_set([0, 1])
"""


@pytest.mark.thorough
def test_a_rank_that_is_killed_while_it_computes(tmp_path):
    path = script(tmp_path, f"{INIT}if rank == 1:\n    {KILL}\n{OTHERS}")
    outcome = launch("-np", 2, sys.executable, path)
    assert outcome.code == 137
    at_once = [line for line in outcome.err.splitlines() if line.endswith("; the job ends")]
    assert len(at_once) == 1, outcome.err
    assert re.match(r"tfhvdrun: rank 1 on host \S+: killed by SIGKILL \(by a user, or ", at_once[0])
    assert outcome.err.index(at_once[0]) < outcome.err.index("failed first")
    assert re.match(
        r"tfhvdrun: rank 1 on host \S+ failed first: killed by SIGKILL \(by a user, or by the ",
        outcome.own_lines[0],
    )
    assert outcome.own_lines[1] == "tfhvdrun: it was in no collective, and had begun none."


def test_a_rank_that_is_killed_while_it_waits(tmp_path):
    path = script(tmp_path, f"{INIT}{DIE_WAITING}{ASLEEP}")
    outcome = launch("-np", 2, sys.executable, path)
    assert outcome.code == 137
    assert re.fullmatch(
        r"tfhvdrun: it had waited for other ranks with add_process_set 'tfhvd.process_sets' "
        r"\(0 B\) for \d\.\d+ s\.",
        outcome.own_lines[1],
    )


@pytest.mark.thorough
def test_a_rank_that_ends_without_python(tmp_path):
    path = script(tmp_path, f"{INIT}if rank == 1:\n    os._exit(5)\n{OTHERS}")
    outcome = launch("-np", 2, sys.executable, path)
    assert outcome.code == 5
    assert outcome.own_lines[0].endswith("failed first: exit code 5")
    assert outcome.own_lines[1] == "tfhvdrun: it was in no collective, and had begun none."


FOLLOWS = INIT + "if rank == 1: raise ValueError('bad luck')\nhvd.add_process_set([0])\n"


def test_ranks_that_fail_because_of_another_one_say_so_in_a_line(tmp_path):
    path = script(tmp_path, FOLLOWS)
    logs = tmp_path / "logs"
    outcome = launch("-np", 3, "--output-filename", logs, sys.executable, path)
    assert outcome.code == 1
    said = outcome.err.split("tfhvdrun: ")[0].splitlines()
    for rank in (0, 2):
        [line] = [line for line in said if line.startswith(f"[{rank}] ")]
        user_messages.check("a rank fails because of another one", line)
        troubleshooting.check("`has left the job`", line)
        file = (logs / f"rank.{rank}" / "stderr").read_text()
        assert "Traceback (most recent call last)" in file and "PeerLostError: " in file
    assert "[1] Traceback (most recent call last):" in said
    assert "[1] ValueError: bad luck" in said


@pytest.mark.parametrize(
    "call",
    first_of(["hvd.rank()", "hvd.allreduce(1.0)", "hvd.size()", "hvd.ProcessSet([0]).rank()"]),
)
def test_what_is_asked_before_init_is_said_in_a_line(tmp_path, call):
    path = script(tmp_path, f"import tfhvd as hvd\n\ndef main():\n    {call}\n\nmain()\n")
    logs = tmp_path / "logs"
    outcome = launch("-np", 2, "--output-filename", logs, sys.executable, path)
    line = f"tfhvd: {path}, line 5: tfhvd has not been initialized. Call hvd.init() first."
    assert outcome.code == 1
    assert "Traceback" not in outcome.err and "tfhvd/runtime" not in outcome.err
    assert outcome.err.count(line) == 3, outcome.err  # of both ranks, and at the end
    user_messages.check("a call before hvd.init()", line)
    troubleshooting.check("`tfhvd has not been initialized`", line)
    for rank in range(2):
        assert f"[{rank}] {line}" in outcome.err.splitlines()
        file = (logs / f"rank.{rank}" / "stderr").read_text()
        assert "Traceback (most recent call last)" in file and call in file


def test_without_tfhvdrun_python_shows_the_traceback(tmp_path):
    path = script(tmp_path, "import tfhvd as hvd\nhvd.rank()\n")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, env=environment())
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback") and "Call hvd.init() first." in done.stderr


@pytest.mark.thorough
def test_v_shows_the_tracebacks_of_all_ranks(tmp_path):
    outcome = launch("-v", "-np", 2, sys.executable, script(tmp_path, FOLLOWS))
    assert "[0] tfhvd.errors.PeerLostError: " in outcome.err
    assert "[1] ValueError: bad luck" in outcome.err


def test_of_tensorflows_error_the_line_that_names_a_rank_is_said():
    error = RuntimeError(
        "Graph execution error:\n\nDetected at node y defined at (most recent call last):\n"
        "{{function_node __wrapped__Tfhvd}} rank 1 (host b) has died. [Op:TfhvdAllreduce] name: "
    )
    assert exit_handler.gist(error) == "rank 1 (host b) has died."
    assert exit_handler.gist(RuntimeError("")) == "RuntimeError"


# Rank 1 does what the braces say behind its last collective; rank 0 does the other.
GONE = "hvd.add_process_set([1])\nif rank == 1:\n    {}\n{}\n"


@pytest.mark.parametrize(
    ("deed", "others"),
    [
        # That the others wait in hvd.shutdown() is a row of user_messages.py.
        also("os._exit(0)", "time.sleep(60)"),
        also("os._exit(0)", "hvd.add_process_set([0])"),
        also("hvd.shutdown(); hvd.init(); os._exit(0)", "hvd.shutdown(); hvd.init()"),
    ],
)
def test_a_rank_that_is_gone_without_a_goodbye_has_failed(tmp_path, deed, others):
    path = script(tmp_path, INIT + GONE.format(deed, others))
    outcome = launch("-np", 2, sys.executable, path)
    assert outcome.code == 1, outcome.err
    assert re.search(
        r"rank 1 on host .* failed first: exit code 0 without hvd.shutdown\(\)",
        outcome.own_lines[0],
    )
    assert "call hvd.shutdown()" in outcome.own_lines[1]


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(0)",  # all ranks do, so that none waits
        also("hvd.shutdown(); os._exit(0)"),
        also("hvd.shutdown(); hvd.init(); hvd.shutdown(); os._exit(0)"),
        also("sys.exit()"),
    ],
)
def test_a_job_in_which_none_waits_for_who_is_gone_has_ended_well(tmp_path, end):
    outcome = launch("-np", 2, sys.executable, script(tmp_path, f"{INIT}{end}\n"))
    assert (outcome.code, outcome.own_lines) == (0, []), outcome.err


def test_a_command_that_is_not_tfhvds_has_done_nothing(tmp_path):
    outcome = launch("-np", 1, sys.executable, script(tmp_path, "os._exit(5)"))
    assert outcome.code == 5
    assert not any("collective" in line for line in outcome.own_lines)


@pytest.mark.thorough
@pytest.mark.skipif(not control_groups.possible(), reason="only root can make control groups")
def test_a_rank_that_the_kernel_kills_for_its_memory(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(EATS)
    with control_groups.words_in(*control_groups.memory(2 << 30)) as shell:
        words = [sys.executable, "-m", "tfhvd.launch", "-np", "2", sys.executable, str(path)]
        ran = subprocess.run(
            [*shell, *words], capture_output=True, text=True, timeout=60, check=False
        )
    assert ran.returncode == 137, ran.stderr
    troubleshooting.check("`has died`, or `killed by SIGKILL`", ran.stderr)
