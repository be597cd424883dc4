"""Trains under a real Slurm: tfhvdrun inside an allocation, and the batch script of the examples.

    sudo --preserve-env python tests/long/slurm.py [--only TEXT]

Slurm is Debian's, installed in a root directory of its own over this machine's (private_root.py),
with two nodes that are this machine under two names, each with its own /dev/shm. Needs root, and
access to Debian's packages. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import commands
import private_root

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "slurm.sh"
NODES = ("n1", "n2")
HOST = "slurm"
LIMIT = 180  # seconds for a command

CONFIGURATION = f"""
ClusterName=tfhvd
SlurmctldHost={HOST}(127.0.0.1)
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd.%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.%n.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
NodeName={NODES[0]} NodeHostname={HOST} NodeAddr=127.0.0.1 Port=17001 CPUs=8
NodeName={NODES[1]} NodeHostname={HOST} NodeAddr=127.0.0.1 Port=17002 CPUs=8
PartitionName=all Nodes=ALL Default=YES State=UP
"""

# Runs a node's slurmd as on a host of its own.
NODE = """
hostname "$0"
mount -t tmpfs none /dev/shm
mount -t tmpfs none /tmp  # Slurm's PMIx has a socket there
exec slurmd -D -N "$0"
"""

TRAIN = """
import socket

import tensorflow as tf
import tfhvd as hvd

hvd.init()
total = hvd.allreduce(tf.constant(1.0), op=hvd.Sum)
print(f"rank {hvd.rank()} of {hvd.size()} on {socket.gethostname()}: {total:.0f}\\n", end="")
"""

SAVES = """
import pathlib, signal, sys, time

import tfhvd as hvd

hvd.init()

def save(*_):
    print(f"saved by rank {hvd.rank()}\\n", end="", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print(f"ready: rank {hvd.rank()}\\n", end="", flush=True)
while True:
    time.sleep(0.1)
"""

STOPS = """
import os, time

import tfhvd as hvd

hvd.init()
attempt = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
hvd.barrier()
hvd.should_stop()  # from here on SIGTERM is a request
print(f"ready: rank {hvd.rank()}, attempt {attempt}\\n", end="", flush=True)
while attempt == 0:
    time.sleep(0.1)
    hvd.barrier()
    if hvd.should_stop():
        print(f"stopped: rank {hvd.rank()}\\n", end="", flush=True)
        raise hvd.StopRequested
"""

HANGS = """
import os, signal

import tensorflow as tf
import tfhvd as hvd

hvd.init()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
hvd.allreduce(tf.constant(1.0))
"""


def start() -> list[subprocess.Popen[bytes]]:
    """Installs Slurm, and starts its daemons, which end with the private root."""
    private_root.apt_install("slurmd", "slurmctld", "slurm-client", "munge", "libpmix-dev")
    with Path("/etc/hosts").open("a", encoding="utf-8") as hosts:
        hosts.write(f"\n127.0.0.1 {HOST} {' '.join(NODES)}\n")
    Path("/etc/slurm").mkdir(exist_ok=True)
    Path("/etc/slurm/slurm.conf").write_text(CONFIGURATION, encoding="utf-8")
    Path("/var/spool/slurmctld").mkdir(exist_ok=True)
    Path("/run/munge").mkdir(exist_ok=True)
    shutil.chown("/run/munge", "munge")
    own = ["unshare", "--uts", "--ipc", "--mount", "bash", "-ec", NODE]
    commands = [
        ["runuser", "-u", "munge", "--", "munged", "--foreground"],
        ["slurmctld", "-D"],
        *([*own, node] for node in NODES),
    ]
    logs = Path("/var/log")
    daemons = []
    for number, words in enumerate(commands):
        with (logs / f"daemon.{number}").open("wb") as log:
            daemons.append(
                subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )
        wait_for(lambda: Path("/run/munge/munge.socket.2").exists(), "munged")
    wait_for(lambda: run(["sinfo", "-h", "-t", "idle", "-o", "%D"]).strip() == "2", "the nodes")
    return daemons


def wait_for(happened: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until, f"{what} did not come in time"
        time.sleep(0.2)


def run(words: Sequence[str], **variables: str) -> str:
    """Runs a command; returns what it prints."""
    ran = commands.run(words, {**os.environ, **variables}, LIMIT)
    assert ran.returncode == 0, f"{' '.join(words)} ended with {ran.returncode}:\n{ran.stdout}"
    return ran.stdout


def program(text: str) -> str:
    path = private_root.DISK / "program.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def ranks_in(text: str) -> list[str]:
    return sorted(re.findall(r"rank \d of \d on \w+: \d", text))


def expected(of_nodes: Sequence[str]) -> list[str]:
    size = len(of_nodes)
    return [f"rank {rank} of {size} on {node}: {size}" for rank, node in enumerate(of_nodes)]


def in_an_allocation() -> None:
    """Of one node, then of two; tfhvdrun is told neither the number of ranks nor the hosts."""
    path = program(TRAIN)
    said = run(["srun", "-n1", "--overcommit", "-w", "n1", "hostname"])
    assert said.strip() == "n1", said
    for arguments, nodes in (
        (["-N1", "-n2", "-w", "n1"], ["n1"] * 2),
        (["-N2", "--ntasks-per-node=2"], ["n1"] * 2 + ["n2"] * 2),
    ):
        # The batch step runs on the allocation's first node, as sbatch's.
        said = batch([*arguments, "--wrap", f"exec tfhvdrun {sys.executable} {path}"])
        assert ranks_in(said) == expected(nodes), said


def by_the_script(launcher: str) -> None:
    arguments = ["-N2", "--ntasks-per-node=2", "--cpus-per-task=1", str(SCRIPT)]
    said = batch([*arguments, sys.executable, program(TRAIN)], LAUNCHER=launcher)
    assert ranks_in(said) == expected(["n1", "n1", "n2", "n2"]), said


def a_preemption() -> None:
    """Slurm's SIGTERM reaches every rank, which has time to save."""
    output = private_root.DISK / "preempted.log"
    arguments = ["-N2", "--ntasks-per-node=1", "--cpus-per-task=1", f"--output={output}"]
    words = ["sbatch", "--parsable", *arguments, str(SCRIPT), sys.executable, program(SAVES)]
    job = run(words).split()[-1]
    wait_for(lambda: output.exists() and output.read_text().count("ready") == 2, "the ranks")
    run(["scancel", "--batch", "--signal=TERM", job])
    wait_for(lambda: not run(["squeue", "-h"]).strip(), "the end of the job")
    said = output.read_text(encoding="utf-8")
    assert sorted(re.findall(r"saved by rank \d", said)) == [f"saved by rank {n}" for n in (0, 1)]


def a_stop() -> None:
    """Slurm's SIGTERM stops all ranks, and the script has Slurm start the job again."""
    output = private_root.DISK / "stopped.log"
    arguments = ["-N2", "--ntasks-per-node=1", "--cpus-per-task=1", f"--output={output}"]
    words = ["sbatch", "--parsable", *arguments, str(SCRIPT), sys.executable, program(STOPS)]
    job = run(words).split()[-1]
    wait_for(lambda: output.exists() and output.read_text().count("ready") == 2, "the ranks")
    run(["scancel", "--batch", "--signal=TERM", job])
    wait_for(lambda: run(["squeue", "-h", "-t", "PENDING"]).strip() != "", "the requeue")
    # Slurm itself waits two minutes. A node takes a job at once for the one that has ended there.
    run(["scontrol", "update", f"JobId={job}", "StartTime=now+5"])
    wait_for(lambda: not run(["squeue", "-h"]).strip(), "the end of the job")
    said = output.read_text(encoding="utf-8")
    assert sorted(re.findall(r"stopped: rank (\d)", said)) == ["0", "1"], said
    assert sorted(re.findall(r"rank (\d), attempt 1", said)) == ["0", "1"], said


def a_hang() -> None:
    """The rank that waits says which one is stopped on the other node, and the job ends."""
    arguments = ["-N2", "--ntasks-per-node=1", "--cpus-per-task=1", str(SCRIPT)]
    hangs = {"TFHVD_ON_HANG": "abort", "TFHVD_STALL_CHECK_TIME_SECONDS": "2"}
    said = "it ended well"
    try:
        batch([*arguments, sys.executable, program(HANGS)], LAUNCHER="srun", **hangs)
    except AssertionError as error:
        said = str(error)
    assert "the job hangs:\n  A rank is stopped.\n  Rank 1 (host n2, process " in said, said
    assert "TFHVD_ON_HANG=abort ends the job" in said, said


def batch(arguments: Sequence[str], **variables: str) -> str:
    """Runs a batch job to its end; returns what it printed."""
    output = private_root.DISK / "job.log"
    output.unlink(missing_ok=True)
    words = ["sbatch", "--wait", f"--output={output}", *arguments]
    try:
        run(words, **variables)
    except AssertionError as error:
        said = output.read_text(encoding="utf-8") if output.exists() else ""
        raise AssertionError(f"{error}\n{said}") from None
    return output.read_text(encoding="utf-8")


CASES: dict[str, Callable[[], None]] = {
    "tfhvdrun in an allocation": in_an_allocation,
    "examples/slurm.sh": lambda: by_the_script("tfhvdrun"),
    "LAUNCHER=srun examples/slurm.sh": lambda: by_the_script("srun"),
    "SIGTERM of a preemption": a_preemption,
    "SIGTERM, and the job is started again": a_stop,
    "a hang under srun": a_hang,
}


def main() -> int:
    """Runs the cases one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text")
    options = parser.parse_args()
    private_root.enter(HOST)
    programs = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([programs, os.environ["PATH"]])
    daemons = start()
    failed = []
    chosen = {name: case for name, case in CASES.items() if options.only in name}
    print(f"{datetime.date.today()}: {run(['sinfo', '--version']).strip()}", flush=True)
    for name, case in chosen.items():
        began = time.monotonic()
        try:
            case()
            print(f"{name}: passed in {time.monotonic() - began:.0f} s", flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failed.append(name)
            print(f"{name}: failed: {error}", flush=True)
            for log in sorted(Path("/var/log").glob("slurmd.*.log")):
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                print(f"{log}:", *lines[-15:], sep="\n  ")
            run(["scancel", "--user=root"])
    for daemon in daemons:
        daemon.kill()
    print(f"{len(chosen) - len(failed)} of {len(chosen)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
