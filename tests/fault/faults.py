"""Faults on purpose: what is done to a rank, in which job, and what every other rank must say.

The launcher does not help: it is told to let a job go on that has lost a rank. So the ranks find
out by themselves, and end by themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re

import mpi

# The limit of a stall, in seconds, and how much later every survivor has ended.
LIMIT = 4.0
LATER = 5.0
# A killed process is noticed without any limit.
KILLED = 2.0

# Ranks share memory, speak MPI alone, or take themselves to be on two hosts of two.
LAYOUTS = {"shm": "aa", "mpi": "aa", "four": "aaaa", "hosts": "aabb"}
DEEDS = ("killed", "stopped", "raises", "no memory")
MODES = ("plain", "compiled")


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that happens to one rank of one job.

    Attributes:
        layout: A key of LAYOUTS.
        deed: What happens, one of DEEDS.
        victim: The rank.
        mode: Whether the collectives are called from a compiled function.
        after: Seconds of training before it happens.
    """

    layout: str
    deed: str
    victim: int
    mode: str
    after: float = 0.5

    def __str__(self) -> str:
        return f"{self.layout}-{self.deed}-{self.victim}-{self.mode}".replace(" ", "_")

    @property
    def ranks(self) -> int:
        """The size of the job."""
        return len(LAYOUTS[self.layout])

    @property
    def seconds(self) -> float:
        """How long after the deed every survivor has ended at the latest."""
        return KILLED if self.deed == "killed" else LATER + (LIMIT if self.deed == "stopped" else 0)


def everything() -> list[Fault]:
    """Every fault of every rank that differs from the others: rank 0, another, a host's first."""
    found = []
    for layout, deed, mode in itertools.product(LAYOUTS, DEEDS, MODES):
        victims = {"hosts": (0, 1, 2, 3), "four": (0, 3)}.get(layout, (0, 1))
        found += [Fault(layout, deed, victim, mode) for victim in victims]
    return found


PROGRAM = """
import os, resource, signal, sys, threading, time
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")))
os.environ["TFHVD_TEST_HOST"] = "HOSTS"[rank] if "LAYOUT" == "hosts" else "a"
import tensorflow as tf
import tfhvd as hvd

hvd.init()
sizes = [3, 40, 70_000, 900_000]
tensors = [tf.fill([n], float(rank)) for n in sizes]

@tf.function(jit_compile=COMPILED)
def step():
    return [hvd.allreduce(t, op=hvd.Sum, name=f"gradient{i}") for i, t in enumerate(tensors)]

for _ in range(20):
    step()
hvd.barrier()

def now(what):
    with open(os.path.join(os.environ["TFHVD_TEST_OUTPUT"], f"{what}.{rank}"), "w") as file:
        file.write(f"{time.time()}\\n")

def deed():
    now("deed")
    if "DEED" == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if "DEED" == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if "DEED" == "raises":
        raise ValueError("bad luck")
    pages = int(open("/proc/self/statm").read().split()[0])
    bytes_ = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (bytes_ + (8 << 20), -1))

victim = rank == VICTIM
begun = time.time()
if victim and "DEED" in ("killed", "stopped"):
    threading.Timer(AFTER, deed).start()
rows = tf.zeros([30_000_000])
try:
    while True:
        if "DEED" in ("raises", "no memory") and time.time() > begun + AFTER:
            if victim:
                deed()
            hvd.allgather(rows, name="rows")
        step()
except tf.errors.OpError as error:
    now("ended")
    print("said:", str(error).replace("\\n", " "), flush=True)
    hvd.shutdown()  # ends as well
    print("shut down", flush=True)
    os._exit(5)
"""


def run(fault: Fault) -> mpi.Job:
    """Runs the job of a fault; asserts that every survivor names the rank, and soon."""
    text = PROGRAM
    for name, value in {
        "HOSTS": LAYOUTS[fault.layout],
        "LAYOUT": fault.layout,
        "DEED": fault.deed,
        "VICTIM": str(fault.victim),
        "AFTER": str(fault.after),
        "COMPILED": str(fault.mode == "compiled"),
    }.items():
        text = text.replace(name, value)
    survivors = [r for r in range(fault.ranks) if r != fault.victim or fault.deed == "no memory"]
    times: dict[str, float] = {}

    def watch(processes: mpi.Processes) -> None:
        # What does not come is asserted below, with all that the ranks have printed.
        with contextlib.suppress(TimeoutError):
            processes.wait_for_file(f"deed.{fault.victim}")
            for rank in survivors:
                processes.wait_for_text(rank, "shut down", seconds=fault.seconds + 30)
            for name in [f"deed.{fault.victim}", *(f"ended.{rank}" for rank in survivors)]:
                times[name] = float(processes.wait_for_file(name))
        processes.kill()  # a stopped rank ends by no other means

    env = {
        "TFHVD_STALL_CHECK_TIME_SECONDS": str(LIMIT / 2),
        "TFHVD_STALL_SHUTDOWN_TIME_SECONDS": str(LIMIT),
        **({"TFHVD_CPU_OPERATIONS": "mpi"} if fault.layout == "mpi" else {}),
    }
    job = mpi.run_ranks(
        fault.ranks, text, env=env, while_running=watch, launcher=["--enable-recovery"]
    )
    for rank in survivors:
        said = re.findall(r"^said: (.*)$", job.ranks[rank].out, re.M)
        assert said, f"{fault}: rank {rank} said nothing\n{job}"
        assert re.search(rf"ranks? \[?{fault.victim}\b", said[0]), f"{fault}: {said[0]}\n{job}"
        assert f"ended.{rank}" in times, f"{fault}: rank {rank} did not shut down\n{job}"
        took = times[f"ended.{rank}"] - times[f"deed.{fault.victim}"]
        assert took < fault.seconds, f"{fault}: rank {rank} ended after {took:.1f} s\n{job}"
    return job
