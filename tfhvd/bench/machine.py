"""The machine of a run: the device, the threads, and the facts for the report."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from types import ModuleType
from typing import Any

from tfhvd.bench.options import Options
from tfhvd.bench.subjects import Setting


def prepare(hvd: ModuleType, wanted: Options) -> tuple[Setting, str]:
    """Sets TensorFlow up before its first use; returns the setting, and a problem or ""."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(wanted.threads)
    tf.config.threading.set_inter_op_parallelism_threads(wanted.threads)
    if wanted.device == "cpu":
        tf.config.set_visible_devices([], "GPU")
        return Setting("CPU:0", wanted.eager), ""
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) >= hvd.local_size():
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
        return Setting("GPU:0", wanted.eager), ""
    problem = ""
    if wanted.device == "gpu":
        problem = (
            f"--device gpu needs a GPU for each of the {hvd.local_size()} ranks on this host, and "
            f"TensorFlow sees {len(gpus)}; start fewer ranks, or leave out --device gpu."
        )
    tf.config.set_visible_devices([], "GPU")
    return Setting("CPU:0", wanted.eager), problem


def itemsize(dtype: str) -> int:
    """Returns the bytes of one value of a type, which has TensorFlow's name."""
    import tensorflow as tf

    return tf.as_dtype(dtype).size


def address(hvd: ModuleType) -> str:
    """Returns the address at which the other ranks reach this host."""
    return "127.0.0.1" if hvd.cross_size() == 1 else socket.gethostname()


def facts(hvd: ModuleType, wanted: Options, setting: Setting) -> dict[str, Any]:
    """Returns the facts that a comparison of two reports needs."""
    built = hvd.build_info()
    return {
        "tfhvd": built.version,
        "tensorflow": built.tensorflow,
        "mpi": built.mpi,
        "python": built.python,
        "ranks": hvd.size(),
        "hosts": hvd.cross_size(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "device": setting.device,
        "threads": wanted.threads,
        "dtype": wanted.dtype,
        "eager": wanted.eager,
    }


def title(hvd: ModuleType, wanted: Options, setting: Setting) -> str:
    """Returns the facts in one line, for the head of the table."""
    said = facts(hvd, wanted, setting)
    return (
        f"tfhvd {said['tfhvd']}, TensorFlow {said['tensorflow']}: ranks: {said['ranks']}, "
        f"hosts: {said['hosts']}, {said['cores']} cores of {said['cpu']}, {setting.device}, "
        f"threads for computation: {wanted.threads}, {wanted.dtype}, "
        f"{'eager' if wanted.eager else 'in a tf.function'}"
    )


def _cpu() -> str:
    """Returns Linux's name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.machine()
