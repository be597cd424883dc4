"""The environment of mpirun and the ranks, and the variables that other hosts get."""

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

# Open MPI's parameters for the folder of mpirun's temporary files, since 5.0 and before: the prefix
# of variables, the parameter for this host, and the one for all hosts. It refuses both together.
_FOLDERS = (
    ("PRTE_MCA_", "prte_local_tmpdir_base", "prte_tmpdir_base"),
    ("OMPI_MCA_", "orte_local_tmpdir_base", "orte_tmpdir_base"),
)
# The parameters for this host, as variables. Only mpirun may have them: ranks of Open MPI 4 do not
# start if they inherit these variables in addition to the folder that mpirun tells them.
FOLDERS_OF_MPIRUN = tuple(prefix + here for prefix, here, _ in _FOLDERS)

# Variables that describe one host, terminal or login; and variables in which an MPI or a batch
# system describes one process.
_OWN = re.compile(
    "_|HOME|USER|LOGNAME|SHELL|SHLVL|PWD|OLDPWD|MAIL|HOST(NAME|TYPE)?|TMP|TMPDIR|TEMP|LS_COLORS"
    "|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|WINDOWID|COLORTERM|COLUMNS|LINES|PS[0-4]|PROMPT_COMMAND"
    "|KRB5CCNAME|STY|(BASH_FUNC|SSH|TERM|TMUX|DBUS|XDG|GPG)(_.*)?"
    "|(OMPI|PMI|PMIX|PRTE|HYDRA|MPI|SLURM|SLURMD|PBS|LSB|LSF|SGE|PE|COBALT)_.*"
)
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")  # bash's functions have others
_BATCH = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_HOSTS", "PE_HOSTFILE", "COBALT_NODEFILE")


def build(job: Job, base: Mapping[str, str], *, root: bool) -> dict[str, str]:
    """Returns the environment of mpirun; the ranks on this host inherit it.

    Args:
        job: the job, whose settings and ``--env`` values take precedence over ``base``.
        base: the launcher's environment.
        root: whether the user is root, for whom Open MPI runs only if two variables allow it.
    """
    env = dict(base)
    env.pop(RANK, None)  # set if a rank of another job has started this launcher
    # Otherwise Python would buffer a rank's output up to 8 KiB.
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
        # Every Python that the command starts reads PYTHONPATH, and puts it right after the folder
        # of the script. The folder of the shim contains only the package `horovod`.
        paths = [str(_SHIM), *filter(None, [env.get("PYTHONPATH")])]
        env["PYTHONPATH"] = os.pathsep.join(paths)
    if chooses_legacy_keras(job, base):
        env[legacy_keras.VARIABLE] = "1"
    return env


def folders_to_set(job: Job, env: Mapping[str, str]) -> list[str]:
    """Returns variables for the folder of mpirun's files, except those that the user has set."""
    return [
        prefix + here
        for prefix, here, everywhere in _FOLDERS
        if not {prefix + here, prefix + everywhere} & env.keys()
        and not {here, everywhere} & set(job.mpi_args)
    ]


def chooses_legacy_keras(job: Job, base: Mapping[str, str]) -> bool:
    """Returns whether the ranks get Keras 2 as `tf.keras`, since neither base nor --env decides."""
    said = {**base, **{name: value or "" for name, value in job.env}}
    return job.as_horovod and legacy_keras.is_to_be_chosen(said)


def exported(job: Job, env: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the sorted names of the variables that ranks on other hosts get.

    These are all variables, except those that describe this host; but always those of ``--env``.
    """
    wanted = {name for name, _ in job.env}
    passed = (name for name in env if _NAME.fullmatch(name) and not _OWN.fullmatch(name))
    return tuple(sorted({*passed, *(wanted & env.keys())}))


def in_allocation(env: Mapping[str, str]) -> bool:
    """Returns whether a batch system has chosen the hosts (mpirun asks it)."""
    return any(name in env for name in _BATCH)


def physical_cores() -> int:
    """Returns the cores (not hardware threads) of this process, which Open MPI counts as slots."""
    allowed = os.sched_getaffinity(0)
    cores = set()
    for cpu in allowed:
        try:
            path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
            cores.add(path.read_text(encoding="ascii").strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, len(cores))
