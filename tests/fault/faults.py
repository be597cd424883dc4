"""Faults on purpose: what is done to a rank, in which job, and what every other rank must say.

The launcher does not help: it is told to let a job go on that has lost a rank. So the ranks find
out by themselves, and end by themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import time
from collections.abc import Iterator
from typing import Any

import mpi
import network
import shared_memory

# The limit of a stall, in seconds, and how much later every survivor has ended.
LIMIT = 4.0
LATER = 5.0
# A killed process is noticed without any limit.
KILLED = 2.0
# How much later hvd.shutdown() has returned.
SHUTDOWN = 2.0

# Ranks share memory, speak MPI alone, or take themselves to be on two hosts of two.
LAYOUTS = {"shm": "aa", "mpi": "aa", "four": "aaaa", "hosts": "aabb"}
# Hosts with a network of their own between them.
NETWORKS = {"network-3": "abc", "network-2": "aabb"}
DEEDS = ("killed", "zombie", "stopped", "raises", "no memory")
CUT_OFF = "cut off"  # what happens to a host of a network
MODES = ("plain", "compiled")
UNCAUGHT = "uncaught"  # plain, and the program does nothing about the error

# What makes a launcher let a job go on that has lost a rank, and one whose ranks end with an exit
# code, as every survivor does: without the second it ends those that are a moment later.
LETS_GO_ON = ("--runtime-options", "recoverable=1,error-nonzero-status=0")


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that happens to one rank of one job, or to its host.

    Attributes:
        layout: A key of LAYOUTS, or of NETWORKS.
        deed: What happens, one of DEEDS, or CUT_OFF.
        victim: The rank.
        mode: Whether the collectives are called from a compiled function; one of MODES, or
            UNCAUGHT.
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
    def hosts(self) -> str:
        """A letter for each rank's host."""
        return {**LAYOUTS, **NETWORKS}[self.layout]

    @property
    def seconds(self) -> float:
        """How long after the deed every survivor has ended at the latest."""
        if self.deed in ("killed", "zombie"):
            return KILLED
        return LATER + (LIMIT if self.deed in ("stopped", CUT_OFF) else 0)

    @property
    def survivors(self) -> list[int]:
        """The ranks that live on."""
        everyone = range(len(self.hosts))
        dies = self.deed not in ("no memory", CUT_OFF)
        return [rank for rank in everyone if rank != self.victim or not dies]

    def named_by(self, rank: int) -> list[int]:
        """The ranks of which a survivor must name one."""
        if self.deed != CUT_OFF:
            return [self.victim]
        on_lost_host = [host == self.hosts[self.victim] for host in self.hosts]
        return [r for r, lost in enumerate(on_lost_host) if lost != on_lost_host[rank]]


def everything() -> list[Fault]:
    """Every fault of every rank that differs from the others: rank 0, another, a host's first."""
    found = []
    for layout, deed, mode in itertools.product(LAYOUTS, DEEDS, MODES):
        victims = {"hosts": (0, 1, 2, 3), "four": (0, 3)}.get(layout, (0, 1))
        found += [Fault(layout, deed, victim, mode) for victim in victims]
    if network.available():
        for layout, deed, mode in itertools.product(NETWORKS, (CUT_OFF, *DEEDS), MODES):
            firsts = (0, NETWORKS[layout].index(NETWORKS[layout][-1]))
            found += [Fault(layout, deed, victim, mode) for victim in firsts]
    return found


PROGRAM = """
import itertools, os, resource, signal, sys, threading, time
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")))
if not "LAYOUT".startswith("network"):
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
begun = time.time()
for _ in range(10):
    step()
# As many on every rank: what comes after them is called by all.
steps = hvd.broadcast_object(int(10 * AFTER / (time.time() - begun)))

def now(what):
    with open(os.path.join(os.environ["TFHVD_TEST_OUTPUT"], f"{what}.{rank}"), "w") as file:
        file.write(f"{time.time()}\\n")

def deed():
    now("deed")
    if "DEED" == "zombie":
        os.kill(os.getppid(), signal.SIGSTOP)  # which would take note of the end
    if "DEED" in ("killed", "zombie"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "DEED" == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if "DEED" == "raises":
        raise ValueError("bad luck")
    pages = int(open("/proc/self/statm").read().split()[0])
    bytes_ = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (bytes_ + (8 << 20), -1))

victim = rank == VICTIM
if victim and "DEED" in ("killed", "zombie", "stopped"):
    threading.Timer(AFTER, deed).start()
rows = tf.zeros([30_000_000])
now("ready")
try:
    for number in itertools.count():
        if "DEED" in ("raises", "no memory") and number >= steps:
            if victim:
                deed()
            hvd.allgather(rows, name="rows")
        step()
except tf.errors.OpError as error:
    now("said")
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    print("said:", str(error).replace("\\n", " "), flush=True)
    if "MODE" == "uncaught":
        raise  # what tfhvd does at the end of an interpreter shuts it down
    hvd.shutdown()  # ends as well
    now("left")
    sys.exit(5)  # and so does the interpreter
"""


def run(fault: Fault) -> mpi.Job:
    """Runs the job of a fault.

    Asserts that every survivor names the rank and ends, and soon; that nothing of it lives on, and
    that no shared memory is left.
    """
    text = PROGRAM
    for name, value in {
        "HOSTS": fault.hosts,
        "LAYOUT": fault.layout,
        "DEED": fault.deed,
        "VICTIM": str(fault.victim),
        "AFTER": str(fault.after),
        "COMPILED": str(fault.mode == "compiled"),
        "MODE": fault.mode,
    }.items():
        text = text.replace(name, value)
    times: dict[str, float] = {}
    env = {"TFHVD_CPU_OPERATIONS": "mpi"} if fault.layout == "mpi" else {}
    if fault.deed in ("stopped", CUT_OFF):  # what else happens is noticed without any setting
        env["TFHVD_STALL_CHECK_TIME_SECONDS"] = str(LIMIT / 2)
        env["TFHVD_STALL_SHUTDOWN_TIME_SECONDS"] = str(LIMIT)
    segments = shared_memory.files()
    alive: list[str] = []
    with _network(fault) as net:

        def watch(processes: mpi.Processes) -> None:
            # What does not come is asserted below, with all that the ranks have printed.
            with contextlib.suppress(TimeoutError):
                if net is not None and fault.deed == CUT_OFF:
                    for rank in range(len(fault.hosts)):
                        processes.wait_for_file(f"ready.{rank}", mpi.SECONDS_TO_START)
                    time.sleep(fault.after)
                    times["deed"] = time.time()
                    net.cut_off(sorted(set(fault.hosts)).index(fault.hosts[fault.victim]))
                else:
                    done = processes.wait_for_file(f"deed.{fault.victim}", mpi.SECONDS_TO_START)
                    times["deed"] = float(done)
                for rank in fault.survivors:
                    processes.wait_for_file(f"{rank}.code", seconds=fault.seconds + 30)
                    for what in ("said", "left"):
                        with contextlib.suppress(OSError):
                            times[f"{what}.{rank}"] = processes.time_in_file(f"{what}.{rank}")
                alive.extend(processes.wait_until_gone(ranks=fault.survivors))
            processes.kill()  # a stopped rank ends by no other means, nor does what waits for it

        where: dict[str, Any] = {}
        options = list(LETS_GO_ON)
        if net is not None:
            options += net.launcher(len(fault.hosts) // len(set(fault.hosts)))
            where = {"within": net.run_on(0)}
        job = mpi.run_ranks(
            len(fault.hosts), text, env=env, while_running=watch, launcher=options, **where
        )
    for rank in fault.survivors:
        said = re.findall(r"^said: (.*)$", job.ranks[rank].out, re.M)
        assert said, f"{fault}: rank {rank} said nothing\n{job}"
        named = "|".join(map(str, fault.named_by(rank)))
        assert re.search(rf"ranks? \[?({named})\b", said[0]), f"{fault}: {said[0]}\n{job}"
        code = job.ranks[rank].code
        expected = 1 if fault.mode == UNCAUGHT else 5
        assert code == expected, f"{fault}: rank {rank} ended with exit code {code}\n{job}"
        took = times[f"said.{rank}"] - times["deed"]
        assert took < fault.seconds, f"{fault}: rank {rank} heard of it after {took:.1f} s\n{job}"
        if fault.mode != UNCAUGHT:
            took = times[f"left.{rank}"] - times["deed"]
            latest = fault.seconds + SHUTDOWN
            assert took < latest, f"{fault}: rank {rank} had shut down after {took:.1f} s\n{job}"
    assert not alive, f"{fault}: {alive} did not end\n{job}"
    left = shared_memory.left(segments)
    assert not left, f"{fault}: {left} left in /dev/shm\n{job}"
    return job


@contextlib.contextmanager
def _network(fault: Fault) -> Iterator[network.Network | None]:
    if fault.layout not in NETWORKS:
        yield None
        return
    with network.hosts(len(set(fault.hosts))) as net:
        yield net
