"""A rank that ends without a word of its own: tfhvdrun says how, and what it was doing."""

from __future__ import annotations

import re
import subprocess
import sys

import control_groups
import pytest
import troubleshooting
from launching import launch, script

INIT = "import threading, tfhvd as hvd\nhvd.init()\nrank = hvd.rank()\n"
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
OTHERS = "else:\n    hvd.add_process_set([0, 1])\n"
ASLEEP = "else:\n    time.sleep(60)\n"
DIE_WAITING = f"""
from tfhvd.watch import flight
from tfhvd.runtime.library import load_native

def die_waiting():
    while flight.read(load_native().flight_record()).submitted == 0:
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


def test_a_rank_that_ends_without_python(tmp_path):
    path = script(tmp_path, f"{INIT}if rank == 1:\n    os._exit(5)\n{OTHERS}")
    outcome = launch("-np", 2, sys.executable, path)
    assert outcome.code == 5
    assert outcome.own_lines[0].endswith("failed first: exit code 5")
    assert outcome.own_lines[1] == "tfhvdrun: it was in no collective, and had begun none."


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
