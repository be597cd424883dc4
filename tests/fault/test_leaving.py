"""A rank raises, exits, is killed or stops: the others end soon and say why; nothing is left."""

from __future__ import annotations

import os
import re
import signal

import faults
import mpi
import pytest
import user_messages

pytestmark = pytest.mark.thorough

# How long the others may take to end, once a rank is gone.
SECONDS = 10

BEGIN = """
import os, signal, sys, threading, time
import tensorflow as tf
import tfhvd as hvd

hvd.init()
name = f"pid.{hvd.rank()}"
with open(os.path.join(os.environ["TFHVD_TEST_OUTPUT"], name), "w") as file:
    file.write(f"{os.getpid()}\\n")
assert hvd.allreduce(1.0, op=hvd.Sum, name="first") == hvd.size()
others_wait = tf.function(lambda: hvd.allreduce(tf.ones([4]), name="wanted"))
others_wait.get_concrete_function()  # who waits shall not have to trace first
COMPILE
hvd.barrier()
victim = hvd.rank() == VICTIM
if victim:
    time.sleep(PAUSE)
    print("now", flush=True)
"""

DEEDS = {
    "raises": "raise ValueError('bad\\nluck')",
    "exits": "sys.exit(3)",
    "ends": "sys.exit()",
    "exits at once": "os._exit(7)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
}


# Compiled, and run once for it.
COMPILED = """
others_wait = tf.function(others_wait.python_function, jit_compile=True)
others_wait()
"""


def begin(victim: int = 1, pause: float = 0.0, compiled: bool = False) -> str:
    text = BEGIN.replace("VICTIM", str(victim)).replace("PAUSE", str(pause))
    return text.replace("COMPILE", COMPILED if compiled else "")


def job_where(
    rest: str, ranks: int = 2, victim: int = 1, pause: float = 0, compiled: bool = False, **env: str
):
    """Runs a job whose victim prints "now" and then does something; the job must end soon after."""
    text = begin(victim, pause, compiled) + rest
    left = []

    def watch(processes: mpi.Processes) -> None:
        processes.wait_for_text(victim, "now")
        left.extend(processes.wait_until_gone(SECONDS))

    job = mpi.run_ranks(ranks, text, env=env, while_running=watch)
    assert not left, f"still there after {SECONDS} s: {left}\n{job}"
    assert not job.left, job
    return job


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("moment", ["before", "during"])
@pytest.mark.parametrize("deed", ["raises", "exits", "ends"])
def test_the_others_say_who_left_and_why(deed, moment, victim):
    rest = f"""
if victim:
    {DEEDS[deed]}
time.sleep({1.0 if moment == "before" else 0.0})
others_wait()
"""
    job = job_where(rest, victim=victim, pause=1.0 if moment == "during" else 0.0)
    other = job.ranks[1 - victim]
    assert other.code in (1, None), job
    last = other.err.strip().splitlines()[-10:]
    message = "\n".join(last)
    assert "AbortedError" in message, job
    assert "'wanted'" in message, job
    assert f"rank {victim}" in message, job
    if deed == "raises":
        assert "ValueError: bad" in message, job
    # mpirun ends the ranks that are left as soon as one has failed.
    assert job.ranks[victim].code in ({"raises": 1, "exits": 3, "ends": 0}[deed], None), job
    assert job.code not in (0, None), job


@pytest.mark.parametrize("moment", ["before", "during"])
@pytest.mark.parametrize("deed", ["exits at once", "is killed"])
def test_the_launcher_ends_a_job_that_has_lost_a_rank(deed, moment):
    rest = f"""
if victim:
    {DEEDS[deed]}
time.sleep({1.0 if moment == "before" else 0.0})
others_wait()
"""
    job = job_where(rest, pause=1.0 if moment == "during" else 0.0)
    assert job.code not in (0, None), job
    assert job.ranks[1].code == {"exits at once": 7, "is killed": 128 + signal.SIGKILL}[deed], job
    said = job.launcher + job.ranks[0].err
    assert "signal 9" in said or "non-zero" in said or "exit code: 7" in said, job


def test_who_has_left_does_not_wait_for_a_rank_that_is_gone_without_a_goodbye():
    left = []

    def watch(processes: mpi.Processes) -> None:
        processes.wait_for_text(1, "now")
        left.extend(processes.wait_until_gone(SECONDS, ranks=[0]))
        processes.kill()

    text = begin() + "if victim:\n    os._exit(0)\n"
    job = mpi.run_ranks(2, text, while_running=watch, launcher=faults.LETS_GO_ON)
    assert not left, f"still there after {SECONDS} s: {left}\n{job}"
    user_messages.check("a rank ends without a goodbye, under mpirun", job.ranks[0].err)


def test_one_raises_and_the_others_wait_in_a_compiled_function():
    rest = f"if victim:\n    {DEEDS['raises']}\nothers_wait()\n"
    job = job_where(rest, pause=1.0, compiled=True)
    [said] = [line for line in job.ranks[0].err.splitlines() if "AbortedError" in line][-1:]
    for part in ("'wanted'", "rank 1", "ValueError: bad"):
        assert part in said, job


def test_one_is_killed_and_the_others_wait_in_a_compiled_function():
    rest = f"if victim:\n    {DEEDS['is killed']}\nothers_wait()\n"
    job = job_where(rest, pause=1.0, compiled=True)
    assert job.code not in (0, None), job
    assert job.ranks[1].code == 128 + signal.SIGKILL, job
    assert "signal 9" in job.launcher + job.ranks[0].err, job


def test_compiled_loops_in_other_orders_end_at_the_stall_limit():
    # What TensorFlow runs in the order of the program cannot be brought into another.
    text = """
import tensorflow as tf
import tfhvd as hvd
from mpi4py import MPI

hvd.init()

@tf.function(jit_compile=True)
def both(x, turns):
    def loop(name):
        y = x
        for _ in tf.range(turns):
            y = hvd.allreduce(y, name=name)
        return y
    return [loop(name) for name in (["one", "two"] if hvd.rank() == 0 else ["two", "one"])]

both(tf.ones([4]), tf.constant(0))
MPI.COMM_WORLD.Barrier()  # a rank that still compiles would have called neither
try:
    both(tf.ones([4]), tf.constant(3))
except tf.errors.AbortedError as error:
    print("caught", error.message)
"""
    env = {"TFHVD_STALL_CHECK_TIME_SECONDS": "0.5", "TFHVD_STALL_SHUTDOWN_TIME_SECONDS": "1"}
    job = mpi.run_ranks(2, text, env=env, timeout=60)
    assert [rank.code for rank in job.ranks] == [0, 0], job
    for rank in job.ranks:
        name = r"'while\w*/(one|two)'"  # after the scope of its loop
        assert re.search(f"caught .*TFHVD_STALL_SHUTDOWN_TIME_SECONDS.*{name}", rank.out), job
        assert re.search(r"submitted by ranks \[[01]\], not by ranks \[[01]\]", rank.out), job
        assert re.search(f"have called {name} and not {name}.*one order", rank.out), job


def test_four_ranks_and_one_raises():
    job = job_where(
        "if victim: raise KeyError('lost')\nothers_wait()", ranks=4, victim=2, pause=0.5
    )
    for number, rank in enumerate(job.ranks):
        assert rank.code in (1, None), job
        if number != 2:
            assert "rank 2" in rank.err and "KeyError: 'lost'" in rank.err, job


def test_who_catches_the_error_may_end_well():
    # The victim's code is 0: of any other mpirun would end who catches, wherever that is by then.
    rest = """
if victim:
    sys.exit()
try:
    others_wait()
except tf.errors.AbortedError as error:
    print("caught", error.message)
"""
    job = job_where(rest)
    assert [rank.code for rank in job.ranks] == [0, 0], job
    assert "caught" in job.ranks[0].out, job
    assert job.code == 0, job


def test_who_raises_does_not_wait_for_a_rank_that_is_busy():
    rest = """
if victim:
    raise ValueError("bad luck")
time.sleep(300)
"""
    job = job_where(rest, TFHVD_SHUTDOWN_TIMEOUT_SECONDS="1")
    assert job.ranks[1].code == 1, job
    assert "ValueError: bad luck" in job.ranks[1].err, job
    assert job.code != 0, job


def test_who_raises_ends_though_its_threads_wait_for_others():
    rest = """
if victim:
    threading.Thread(target=lambda: hvd.allreduce(1.0, name="never")).start()
    time.sleep(0.5)
    raise ValueError("bad luck")
others_wait()
"""
    job = job_where(rest)
    assert job.code == 1, job
    assert "ValueError: bad luck" in job.ranks[0].err, job


ITERATES = """
def elements():
    yield from (1.0, 2.0)
    time.sleep(SECONDS)

def read(read_on):
    data = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec([]))
    iterator = iter(data.prefetch(2))
    next(iterator)
    time.sleep(0.3)  # the generator waits by then
    read_on(iterator)

def fail(iterator):
    raise ValueError("bad luck")
"""
WAITS_FOR_AN_ITERATOR = "tfhvd: the program has ended. Its process ends once an iterator of tf.data"


@pytest.mark.parametrize("way", ["kept by the traceback", "dropped before"])
def test_who_raises_ends_though_a_generator_waits_for_ever(way):
    # TensorFlow alone waits for the generator; what the traceback keeps, it waits for for ever.
    rest = ITERATES.replace("SECONDS", "600")
    if way == "dropped before":
        rest += "if victim:\n    read(lambda iterator: None)\n    fail(None)\nothers_wait()\n"
    else:
        rest += "if victim:\n    read(fail)\nothers_wait()\n"
    job = job_where(rest)
    assert job.ranks[1].code == 1, job
    said = job.ranks[1].err
    assert "ValueError: bad luck" in said.partition(WAITS_FOR_AN_ITERATOR)[0], job
    assert WAITS_FOR_AN_ITERATOR in said, job
    assert "has left the job: ValueError: bad luck" in job.ranks[0].err, job
    assert WAITS_FOR_AN_ITERATOR not in job.ranks[0].err, job


def test_who_has_come_to_its_end_waits_for_a_generator_and_says_so():
    rest = ITERATES.replace("SECONDS", "4")
    rest += "if victim:\n    read(lambda iterator: None)\n"
    job = job_where(rest)
    assert [rank.code for rank in job.ranks] == [0, 0], job
    assert WAITS_FOR_AN_ITERATOR in job.ranks[1].err, job
    assert WAITS_FOR_AN_ITERATOR not in job.ranks[0].err, job


def test_every_rank_raises():
    job = job_where("raise ValueError(f'rank {hvd.rank()}')")
    assert job.code == 1, job
    for number, rank in enumerate(job.ranks):
        assert f"ValueError: rank {number}" in rank.err, job


def test_a_stopped_rank_is_reported():
    text = begin()
    text += """
if victim:
    os.kill(os.getpid(), signal.SIGSTOP)
others_wait()
"""
    seen = []

    def watch(processes: mpi.Processes) -> None:
        processes.wait_for_text(1, "now")
        processes.wait_for_text(0, "'wanted'", 30)
        seen.append(True)
        os.kill(processes.of_rank(1), signal.SIGKILL)

    env = {"TFHVD_STALL_CHECK_TIME_SECONDS": "1"}
    job = mpi.run_ranks(2, text, env=env, while_running=watch)
    assert seen, job
    line = r"\[tfhvd rank 0 on \S+, \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] warning: "
    assert re.search(line, job.ranks[0].err), job
    [report] = [line for line in job.ranks[0].err.splitlines() if "'wanted'" in line][:1]
    assert "submitted by ranks [0], not by ranks [1]" in report, job
    assert job.code not in (0, None), job


def test_a_rank_alone_ends_with_its_own_code():
    for deed, code in {"raises": 1, "exits": 3, "ends": 0}.items():
        text = f"import sys\nimport tfhvd as hvd\nhvd.init()\n{DEEDS[deed]}\n"
        job = mpi.run_ranks(1, text, mpirun=False)
        assert (job.code, job.left) == (code, []), job


def test_children_made_by_fork_end_by_themselves():
    text = """
import multiprocessing, os, sys
import tfhvd as hvd

hvd.init()
child = os.fork()
if child == 0:
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
with multiprocessing.get_context("fork").Pool(1) as pool:
    assert pool.map(abs, [-1]) == [1]
import tensorflow as tf
assert hvd.allreduce(1.0, op=hvd.Sum) == 2.0
"""
    job = mpi.run_ranks(2, text)
    assert (job.code, job.left) == (0, []), job


@pytest.mark.parametrize("first", ["mpi4py", "tfhvd"])
def test_mpi4py_beside_tfhvd(first):
    """Each keeps what it has asked of MPI: here, that an error of mpi4py's calls ends the job."""
    imports = ["from mpi4py import MPI", "import tfhvd as hvd; hvd.init()"]
    text = 'import mpi4py\nmpi4py.rc.errors = "fatal"\n'
    text += "\n".join(imports if first == "mpi4py" else reversed(imports))
    text += """
assert MPI.COMM_WORLD.Get_errhandler() == MPI.ERRORS_ARE_FATAL
import tensorflow as tf
for _ in range(3):
    assert hvd.allreduce(1.0, op=hvd.Sum) == 2.0
    assert MPI.COMM_WORLD.allreduce(1) == 2
assert MPI.COMM_WORLD.rank == hvd.rank()
maps = open("/proc/self/maps").read().split()
assert len({path for path in maps if "/libmpi.so" in path}) == 1
"""
    job = mpi.run_ranks(2, text)
    assert (job.code, job.left) == (0, []), job


def test_processes_that_are_in_no_job_end_in_order():
    """One is told that the job is of others, one does without tfhvd; nobody waits for them."""
    text = """
import os
number = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")))
import tfhvd as hvd

try:
    hvd.init(comm=[3, 0])
    assert (hvd.rank(), hvd.size(), number) in [(0, 2, 3), (1, 2, 0)]
    assert hvd.add_process_set([1]).ranks == [1]
except ValueError as error:
    print(error)
"""
    job = mpi.run_ranks(4, text)
    assert job.code == 0, job
    for number in (1, 2):
        assert f"number {number} of the 4" in job.ranks[number].out, job
        assert "Received: comm=[3, 0]" in job.ranks[number].out, job
    assert not job.left, job
