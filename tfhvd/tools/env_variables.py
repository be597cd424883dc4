"""Which settings are in effect, and which other variables matter to a job; no secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# What tfhvd, TensorFlow, and the libraries that both use look at.
_WANTED = re.compile(
    "(TFHVD|HOROVOD|NCCL|UCX|UCC|FI|OMP|KMP|MKL|XLA|KERAS|CUDA|NVIDIA|LD)_[A-Z0-9_]+"
    "|TF_(CONFIG|CPP|CUDNN|DETERMINISTIC|DISABLE|ENABLE|FORCE|GPU|NUM|USE|XLA)[A-Z0-9_]*"
    "|(OMPI|PRTE|PMIX)_MCA_[a-z0-9_]+|MPICH_[A-Z0-9_]+|HYDRA_[A-Z0-9_]+|MPICC|PYTHONPATH"
    "|SLURM_(JOB_NUM_NODES|NTASKS|NTASKS_PER_NODE|CPUS_PER_TASK|MPI_TYPE)"
)
_SECRET = re.compile("TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|(^|_)KEYS?(_|$)|KEY$")
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")  # as in https://me:word@host
HIDDEN = "(hidden)"


def of_a_job(environ: Mapping[str, str], home: str = "") -> dict[str, str]:
    """Returns the variables to show, sorted; the value of what may be secret is hidden.

    Args:
        environ: all variables.
        home: a folder that is shown as ~.

    Example:
        >>> of_a_job({"TFHVD_LOG_LEVEL": "debug", "HOROVOD_SECRET_KEY": "x", "EDITOR": "vi"})
        {'HOROVOD_SECRET_KEY': '(hidden)', 'TFHVD_LOG_LEVEL': 'debug'}
    """
    return {
        name: HIDDEN if _SECRET.search(name.upper()) else _shown(value, home)
        for name, value in sorted(environ.items())
        if _WANTED.fullmatch(name)
    }


def settings_in_effect(
    rows: Iterable[tuple[str, str | None, str]], shown: Mapping[str, str]
) -> list[str]:
    """Returns a line for each setting in the environment.

    Args:
        rows: of each setting the name, Horovod's name for it or None, and the default.
        shown: of `of_a_job`.

    Example:
        >>> rows = [("TFHVD_CYCLE_TIME", "HOROVOD_CYCLE_TIME", "1")]
        >>> settings_in_effect(rows, {"HOROVOD_CYCLE_TIME": "5"})
        ['TFHVD_CYCLE_TIME=5, from HOROVOD_CYCLE_TIME (default 1)']
    """
    lines = []
    for name, horovod_name, default in rows:
        if shown.get(name):
            lines.append(f"{name}={shown[name]} (default {default})")
        elif horovod_name and shown.get(horovod_name):
            lines.append(f"{name}={shown[horovod_name]}, from {horovod_name} (default {default})")
    return lines


def _shown(value: str, home: str) -> str:
    text = _LOGIN.sub(f"{HIDDEN}@", value)
    return re.sub(rf"{re.escape(home)}(?![^/:,])", "~", text) if len(home) > 1 else text
