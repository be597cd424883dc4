"""The symptoms of docs/troubleshooting.md: each is printed by a program that has the fault.

A symptom is a heading. It has a program here or in user_messages.py, or names the test that makes
it, and compares the page with what was printed; or the source that has the message, where no test
can make it in Python.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import children
import pytest
import python_scan
import troubleshooting
from user_messages import MESSAGES

ROOT = Path(__file__).resolve().parent.parent
TFHVDRUN = [sys.executable, "-m", "tfhvd.launch"]
BEGIN = "import os, signal, subprocess, sys, threading, time\nimport tfhvd as hvd\n"
INIT = BEGIN + "import tensorflow as tf\nhvd.init()\nrank = hvd.rank()\n"
FAST = {"TFHVD_STALL_CHECK_TIME_SECONDS": "1"}
ENDS = {**FAST, "TFHVD_STALL_SHUTDOWN_TIME_SECONDS": "3"}


@dataclass(frozen=True)
class Fault:
    """What makes a symptom.

    Attributes:
        program: of two ranks; or none.
        says: what is printed, where that is not the heading's own text.
        env: settings.
        words: options of tfhvdrun.
        code: with which it ends.
    """

    program: str = ""
    says: str = ""
    env: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ("-np", "2")
    code: int = 1


LATE = "if rank == 1: time.sleep(4)\nhvd.allreduce(1.0, name='x')\n"
CROSSED = "for n in ['a', 'b'][:: 1 - 2 * rank]:\n    hvd.allreduce(1.0, name=n)\n"
STOPPED = """
if rank == 0:
    subprocess.Popen(["sh", "-c", f"sleep 6; kill -CONT {os.getpid()}"])
    hvd.allreduce(1.0, name="before")
    os.kill(os.getpid(), signal.SIGSTOP)
else:
    hvd.allreduce(1.0, name="before")
hvd.allreduce(1.0, name="x")
"""
GENERATES = """
def elements():
    yield 1.0
    time.sleep(4)
data = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec([]))
iterator = iter(data.prefetch(2))
next(iterator)
time.sleep(0.3)
del iterator
"""
UNREDUCED = """
import keras
hvd.init()
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("adam", loss="mse")
import tfhvd.keras
callbacks = [tfhvd.keras.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(tf.ones((8, 2)), tf.ones((8, 1)), callbacks=callbacks, verbose=0)
"""
APART = """
import keras
import tfhvd.keras
keras.utils.set_random_seed(rank)
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(tfhvd.keras.DistributedOptimizer(keras.optimizers.SGD()), loss="mse")
apart = tfhvd.keras.BroadcastGlobalVariablesCallback(None)
model.fit(tf.ones((8, 2)), tf.ones((8, 1)), verbose=0, callbacks=[apart])
"""
NOT_FINITE = """
import keras
import tfhvd.keras
optimizer = tfhvd.keras.DistributedOptimizer(keras.optimizers.SGD())
kernel = keras.Variable([1.0, 1.0, 1.0], name="kernel")
optimizer.build([kernel])
optimizer.apply([tf.constant([1.0, float("nan") if rank == 1 else 1.0, 1.0])])
"""
TWICE = """
import keras, tfhvd.keras
optimizer = tfhvd.keras.DistributedOptimizer(keras.optimizers.SGD())
tfhvd.keras.DistributedOptimizer(optimizer)
"""
THREADS = """
def call():
    hvd.allreduce(1.0)
threads = [threading.Thread(target=call) for _ in range(2)]
hvd.allreduce(1.0)
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
IN_FLIGHT = """
if rank == 0:
    threading.Thread(target=hvd.allreduce, args=(1.0,), kwargs={"name": "x"}, daemon=True).start()
    time.sleep(1)
    hvd.allreduce(1.0, name="x")
else:
    time.sleep(3)
"""
REPEATS = """
for _ in range(100):
    for n in range(8):
        hvd.allreduce(1.0, name=str(n))
"""

LATE_TO_INIT = """
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    time.sleep(4)
hvd.init()
"""

NO_DATA_YET = """
def elements():
    for _ in range(12):
        time.sleep(0.05)
        yield tf.ones([8, 8])
options = tf.data.Options()
options.experimental_optimization.inject_prefetch = False
options.autotune.enabled = False
data = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec((8, 8), tf.float32))
with hvd.profile(steps=10) as profile:
    for x in data.with_options(options):
        hvd.allreduce(x, name="x")
        profile.step()
"""

SLOW_RANK = """
for _ in range(500):
    time.sleep(0.05 * rank)
    hvd.allreduce(1.0, name="x")
"""

FAULTS = {
    "`is slow: rank`": Fault(INIT + SLOW_RANK, code=0),
    "The GPU is idle": Fault(INIT + NO_DATA_YET, code=0),
    "`the program has ended. Its process ends once`": Fault(INIT + GENERATES, code=0),
    "`hvd.init() has waited`": Fault(BEGIN + LATE_TO_INIT, env=FAST, code=0),
    "`some ranks wait for others`": Fault(INIT + LATE, env=FAST, code=0),
    "`Ranks wait for each other`": Fault(INIT + CROSSED, env=ENDS),
    "`has not answered for`": Fault(INIT + STOPPED, env=FAST, code=0),
    "`has finished and waits for the other ranks to finish as well`": Fault(
        INIT + "if rank == 1: time.sleep(3)\n", env=FAST, code=0
    ),
    "`failed first`": Fault(INIT + "if rank == 1: sys.exit('no data')\ntime.sleep(1)\n"),
    "`bdb.BdbQuit`": Fault(INIT + "breakpoint()\nprint()\n"),
    "`Mismatched ... in ...`": Fault(
        INIT + "hvd.allreduce(tf.ones(3 + rank), name='x')\n", says="Mismatched shapes in allreduce"
    ),
    "`updated from gradients of this rank alone`": Fault(INIT + UNREDUCED),
    "`Weights differ between ranks`": Fault(INIT + APART, code=0),
    "`not finite on rank`": Fault(INIT + NOT_FINITE, code=0),
    "An optimizer is wrapped twice": Fault(INIT + TWICE, says="wrapped already|already wrapped"),
    "`This process was forked`": Fault(
        INIT + "if os.fork() == 0: hvd.allreduce(1.0)\nelse: sys.exit(os.wait()[1] and 1)\n"
    ),
    "`still in flight`": Fault(INIT + IN_FLIGHT),
    "`asks for more ranks than the hosts have slots`": Fault(
        INIT, words=("-np", "3", "-H", "localhost:1"), code=2
    ),
    "`cannot be reached by ssh`": Fault(
        INIT, words=("-np", "2", "-H", "no-such-host.invalid:2"), code=2
    ),
    "`has a value that tfhvd cannot use`": Fault(INIT, env={"TFHVD_CYCLE_TIME": "soon"}),
    "`TFHVD_CACHE_CAPACITY=... is too small for this program`": Fault(
        INIT + REPEATS, says="TFHVD_CACHE_CAPACITY=4 is too small", code=0,
        env={"TFHVD_CACHE_CAPACITY": "4"},
    ),
}  # fmt: skip

# What a test elsewhere makes, and compares with the page.
ELSEWHERE = {
    "`is far larger than before`": "keras/test_outliers.py",
    "`has died`, or `killed by SIGKILL`": "launch/test_launch_killed.py",
    "`has left the job`": "launch/test_launch_killed.py",
    "`tfhvd has not been initialized`": "launch/test_launch_killed.py",
    "`more than half of the ranks failed at once`": "launch/test_lost_launcher.py",
    "Unnamed collectives from two threads": "ops/test_order.py",
    "The job hangs at the start, on several hosts": "tools/test_doctor_hosts.py",
    "mpirun belongs to another MPI": "runtime/test_launcher_check.py",
    "built with another TensorFlow": "runtime/test_library.py",
    "`tfhvd is not built`": "runtime/test_library.py",
    "`the ranks run different versions of`": "runtime/test_mixed_versions.py",
    "`Until then collectives are slower`": "fault/test_hosts.py",
    "It is slower on two hosts than on one": "profiling/test_profile_on_hosts.py",
    "`cannot get the ... bytes of memory`": "ops/test_no_memory.py",
    "`use the same GPU`": "gpu/test_tensorflow_on_a_fake_gpu.py",
}
# What needs a machine that tests do not have, or is made by tests in C++.
SOURCES = {
    "`has run out of memory`": "cc/engine/pipeline.cc",
    "There is no MPI that can be used": "cc/backends/mpi/mpi_library.cc",
    "`The MPI that tfhvd was built with cannot be loaded`": "cc/backends/mpi/mpi_loader.cc",
    "`mpirun was not found`": "tfhvd/launch/placement/mpi.py",
    "`the ranks began with different weights`": "tfhvd/keras/fit/one_state.py",
    "`at its end the ranks had different weights`": "tfhvd/keras/fit/one_state.py",
    "`collectives on GPU tensors go through the host, which is slow`": "cc/process/accelerator.cc",
}
# Advice without a message.
QUIET = {
    # A message of PMIx: tests/long/slurm.py runs the command that is without it.
    "`Sorry! You were supposed to get help about: find-available:not-valid`",
    "It is slower than expected, without a message",
    "Ranks have different weights",
    "Metrics differ between ranks",
    "Results differ from one process",
}


def test_every_symptom_has_its_fault():
    of_messages = {message.symptom for message in MESSAGES.values() if message.symptom}
    known = {*FAULTS, *of_messages, *ELSEWHERE, *SOURCES, *QUIET}
    assert known == set(troubleshooting.headings())


@pytest.mark.parametrize("heading", ELSEWHERE)
def test_a_symptom_that_is_made_elsewhere_is_compared_there(heading):
    file = ROOT / "tests" / ELSEWHERE[heading]
    assert heading in python_scan.first_arguments(file, "troubleshooting.check")


@pytest.mark.parametrize("heading", SOURCES)
def test_a_symptom_is_what_the_source_says(heading):
    said = troubleshooting.literals(ROOT / SOURCES[heading])
    for text in troubleshooting.messages(heading) or [re.escape(heading)]:
        assert re.search(text, said), f"{SOURCES[heading]} does not say {text}"
    assert not troubleshooting.quoted(heading), "compare what is quoted with what is printed"


@pytest.mark.thorough
@pytest.mark.parametrize("heading", FAULTS)
def test_a_symptom(heading, tmp_path):
    fault = FAULTS[heading]
    (tmp_path / "train.py").write_text(fault.program)
    ran = subprocess.run(
        [*TFHVDRUN, *fault.words, sys.executable, "train.py"],
        cwd=tmp_path,
        env=children.environment(**{"TF_CPP_MIN_LOG_LEVEL": "2", **fault.env}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    printed = ran.stdout + ran.stderr
    assert ran.returncode == fault.code, printed
    if fault.says:
        assert re.search(fault.says, printed), printed
    if not fault.says or troubleshooting.quoted(heading):
        troubleshooting.check(heading, printed)
