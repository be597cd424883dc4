"""Gives each rank a GPU if the program has not chosen one. Used after TensorFlow's import."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfhvd._native import Topology


def choose_gpu(topology: Topology) -> None:
    """Makes TensorFlow use one GPU in this process, another one in each process of the host.

    The GPU has the number of this process among all processes that were started together on the
    host. Two jobs of these processes (`init(comm=...)`) then do not use the same GPU.

    It does nothing if the program or CUDA_VISIBLE_DEVICES has chosen already, if TensorFlow has
    begun to use its devices, and in a job of one process. A program may choose other GPUs
    afterwards.

    Args:
        topology: this process's place in the job.
    """
    if topology.size == 1:
        return
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < 2 or tf.config.get_visible_devices("GPU") != gpus:
        return
    mine = gpus[topology.gpu_of(len(gpus))]
    try:
        tf.config.set_visible_devices(mine, "GPU")
    except RuntimeError:  # Too late. The first collective refuses two ranks on one GPU.
        return
    if topology.rank == 0:
        print(
            "tfhvd: no GPU was chosen, so each rank uses the one with its number on the host. To "
            "choose: tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')",
            file=sys.stderr,
        )


def has_other_gpus() -> bool:
    """Whether TensorFlow computes on GPUs that are not NVIDIA's, as in a build for ROCm."""
    import tensorflow as tf

    is_cuda_build = tf.sysconfig.get_build_info()["is_cuda_build"]
    return not is_cuda_build and bool(tf.config.list_physical_devices("GPU"))
