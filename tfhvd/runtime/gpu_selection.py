"""Gives each rank its GPU where the program has not chosen one. Used once TensorFlow is there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfhvd._native import Topology


def choose_gpu(topology: Topology) -> None:
    """Makes one GPU the only one that TensorFlow uses here: another for each rank of the host.

    It is the one with the process' number among all that were started together on the host, so
    that two jobs of them (`init(comm=...)`) do not meet on one.

    Does nothing where the program or CUDA_VISIBLE_DEVICES has chosen already, where TensorFlow has
    begun to use its devices, and in a job of one process. A program that chooses afterwards has the
    last word.

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
    except RuntimeError:  # Too late. Two ranks on one GPU are refused at the first collective.
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
