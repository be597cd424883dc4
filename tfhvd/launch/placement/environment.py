"""What the ranks inherit: variables for mpirun itself, and their names for the other hosts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tfhvd.launch.placement import legacy_keras
from tfhvd.launch.state.job_spec import Job
from tfhvd.launch.stdio import debugger_stdin
from tfhvd.protocol.variables import MAJORITY, RANK, STANDBY
from tfhvd.system import cpu_affinity

_SHIM = Path(__file__).resolve().parents[2] / "horovod_alias" / "shim"

# Open MPI's parameters that say where mpirun keeps its own files, from 5.0 on and before: on this
# host, and on all hosts. It refuses to be told both.
_FOLDERS = (
    ("PRTE_MCA_", "prte_local_tmpdir_base", "prte_tmpdir_base"),
    ("OMPI_MCA_", "orte_local_tmpdir_base", "orte_tmpdir_base"),
)
# The same for one host, as variables. They are mpirun's alone: ranks of Open MPI 4 refuse to start
# where they inherit them, beside what mpirun itself tells them of its files.
FOLDERS_OF_MPIRUN = tuple(prefix + here for prefix, here, _ in _FOLDERS)

# What is each host's, terminal's or login's own; and what an MPI or a batch system tells each
# process of itself.
_OWN = re.compile(
    "_|HOME|USER|LOGNAME|SHELL|SHLVL|PWD|OLDPWD|MAIL|HOST(NAME|TYPE)?|TMP|TMPDIR|TEMP|LS_COLORS"
    "|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|WINDOWID|COLORTERM|COLUMNS|LINES|PS[0-4]|PROMPT_COMMAND"
    "|KRB5CCNAME|STY|(BASH_FUNC|SSH|TERM|TMUX|DBUS|XDG|GPG)(_.*)?"
    "|(OMPI|PMI|PMIX|PRTE|HYDRA|MPI|SLURM|SLURMD|PBS|LSB|LSF|SGE|PE|COBALT)_.*"
)
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")  # bash's functions have others
_BATCH = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_HOSTS", "PE_HOSTFILE", "COBALT_NODEFILE")


def build(job: Job, base: Mapping[str, str], *, root: bool) -> dict[str, str]:
    """The environment of mpirun, which on this host the ranks inherit.

    Args:
        job: its settings and ``--env`` values win over ``base``.
        base: the launcher's own environment.
        root: whether we are root, whom Open MPI refuses unless told twice.
    """
    env = dict(base)
    env.pop(RANK, None)  # of another job's rank, by which this one is started
    # Without it Python keeps what a rank prints until 8 KiB are together.
    env.setdefault("PYTHONUNBUFFERED", "1")
    if root:
        env["OMPI_ALLOW_RUN_AS_ROOT"] = env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    if job.elastic:
        env[STANDBY] = "1"
    if job.majority:
        env[MAJORITY] = "1"
    if job.share_cores:
        env[cpu_affinity.SHARE] = "1"
    if job.nics:
        env.setdefault("NCCL_SOCKET_IFNAME", ",".join(job.nics))
    if job.ssh_args:
        env["HYDRA_LAUNCHER_EXTRA_ARGS"] = " ".join(job.ssh_args)
    env.update(job.variables)
    env.update(debugger_stdin.launcher_variables(job.pdb, env))
    if job.as_horovod:
        # First on the path after the script's own folder, and read by every Python that the command
        # starts. The folder holds the one package `horovod`.
        paths = [str(_SHIM), *filter(None, [env.get("PYTHONPATH")])]
        env["PYTHONPATH"] = os.pathsep.join(paths)
    if chooses_legacy_keras(job, base):
        env[legacy_keras.VARIABLE] = "1"
    return env


def folders_to_set(job: Job, env: Mapping[str, str]) -> list[str]:
    """Variables that say where mpirun keeps its own files, but for what the user has said of it."""
    return [
        prefix + here
        for prefix, here, everywhere in _FOLDERS
        if not {prefix + here, prefix + everywhere} & env.keys()
        and not {here, everywhere} & set(job.mpi_args)
    ]


def chooses_legacy_keras(job: Job, base: Mapping[str, str]) -> bool:
    """Whether `tf.keras` is to be Keras 2 for the ranks, which neither base nor --env decides."""
    said = {**base, **{name: value or "" for name, value in job.env}}
    return job.as_horovod and legacy_keras.is_to_be_chosen(said)


def exported(job: Job, env: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the variables that ranks on other hosts get, sorted: all but what is a host's own.

    What ``--env`` names they get in any case.
    """
    wanted = {name for name, _ in job.env}
    passed = (name for name in env if _NAME.fullmatch(name) and not _OWN.fullmatch(name))
    return tuple(sorted({*passed, *(wanted & env.keys())}))


def in_allocation(env: Mapping[str, str]) -> bool:
    """Whether a batch system has said which hosts to use (mpirun asks it by itself)."""
    return any(name in env for name in _BATCH)


def physical_cores() -> int:
    """Cores (not hardware threads) that this process may use: what Open MPI counts as slots."""
    allowed = os.sched_getaffinity(0)
    cores = set()
    for cpu in allowed:
        try:
            path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
            cores.add(path.read_text(encoding="ascii").strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, len(cores))
