"""tfhvd: data-parallel training for TensorFlow and Keras, with Horovod's API.

Names are resolved at their first use, so that `import tfhvd` alone does not import TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfhvd._version import __version__

if TYPE_CHECKING:
    from tfhvd import checkpoint, data, elastic
    from tfhvd.compression import Compression
    from tfhvd.data.shard import shard
    from tfhvd.errors import (
        InvalidSettingError,
        NotInitializedError,
        NotSynchronizedError,
        PeerLostError,
        RankFailedError,
        TfhvdError,
    )
    from tfhvd.installation import (
        build_info,
        ccl_built,
        check_num_rank_power_of_2,
        cuda_built,
        ddl_built,
        gloo_built,
        gloo_enabled,
        mpi_built,
        mpi_enabled,
        mpi_threads_supported,
        nccl_built,
        rocm_built,
    )
    from tfhvd.job.process import (
        cross_rank,
        cross_size,
        init,
        is_homogeneous,
        is_initialized,
        local_rank,
        local_size,
        on_membership_change,
        rank,
        shutdown,
        size,
    )
    from tfhvd.keras.batch_norm import SyncBatchNormalization
    from tfhvd.launch.run.caller import run
    from tfhvd.lr_scaling import scaled_lr
    from tfhvd.ops import (
        Adasum,
        Average,
        Max,
        Min,
        Product,
        ReduceOp,
        Sum,
        allgather,
        allgather_object,
        allreduce,
        alltoall,
        barrier,
        batch_weight,
        broadcast,
        broadcast_,
        broadcast_object,
        broadcast_object_fn,
        broadcast_variables,
        grouped_allgather,
        grouped_allreduce,
        grouped_reducescatter,
        join,
        load_ops,
        local_rank_op,
        local_size_op,
        process_set_included_op,
        rank_op,
        reducescatter,
        size_op,
    )
    from tfhvd.optimizer import (
        DistributedOptimizer,
        PartialDistributedOptimizer,
        is_distributed,
    )
    from tfhvd.profiling.profile import profile
    from tfhvd.replicas import check_divergence
    from tfhvd.runtime.process_sets import (
        ProcessSet,
        add_process_set,
        get_process_set_ids_and_ranks,
        global_process_set,
        remove_process_set,
    )
    from tfhvd.runtime.stop import StopRequested, request_stop, should_stop
    from tfhvd.tape import DistributedGradientTape, PartialDistributedGradientTape
    from tfhvd.telemetry.metrics import Metrics, metrics
    from tfhvd.tf1.session_hook import BroadcastGlobalVariablesHook, broadcast_global_variables
    from tfhvd.timeline import start_timeline, stop_timeline
else:  # type checkers know all names from above, and report any other name as a mistake

    def __getattr__(name: str) -> Any:
        if name in _ROOMS:
            return importlib.import_module(f"tfhvd.{name}")
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value


# Modules that are attributes of this package before they are imported.
_ROOMS = ("checkpoint", "data", "elastic")
_HOMES = {
    "tfhvd.compression": ("Compression",),
    "tfhvd.data.shard": ("shard",),
    "tfhvd.errors": (
        "InvalidSettingError",
        "NotInitializedError",
        "NotSynchronizedError",
        "PeerLostError",
        "RankFailedError",
        "TfhvdError",
    ),
    "tfhvd.keras.batch_norm": ("SyncBatchNormalization",),
    "tfhvd.launch.run.caller": ("run",),
    "tfhvd.lr_scaling": ("scaled_lr",),
    "tfhvd.ops": (
        "Adasum",
        "Average",
        "Max",
        "Min",
        "Product",
        "ReduceOp",
        "Sum",
        "allgather",
        "allgather_object",
        "allreduce",
        "alltoall",
        "barrier",
        "batch_weight",
        "broadcast",
        "broadcast_",
        "broadcast_object",
        "broadcast_object_fn",
        "broadcast_variables",
        "grouped_allgather",
        "grouped_allreduce",
        "grouped_reducescatter",
        "join",
        "load_ops",
        "local_rank_op",
        "local_size_op",
        "process_set_included_op",
        "rank_op",
        "reducescatter",
        "size_op",
    ),
    "tfhvd.optimizer": ("DistributedOptimizer", "PartialDistributedOptimizer", "is_distributed"),
    "tfhvd.profiling.profile": ("profile",),
    "tfhvd.replicas": ("check_divergence",),
    "tfhvd.telemetry.metrics": ("Metrics", "metrics"),
    "tfhvd.job.process": (
        "cross_rank",
        "cross_size",
        "init",
        "is_homogeneous",
        "is_initialized",
        "local_rank",
        "local_size",
        "on_membership_change",
        "rank",
        "shutdown",
        "size",
    ),
    "tfhvd.runtime.process_sets": (
        "ProcessSet",
        "add_process_set",
        "get_process_set_ids_and_ranks",
        "global_process_set",
        "remove_process_set",
    ),
    "tfhvd.runtime.stop": ("StopRequested", "request_stop", "should_stop"),
    "tfhvd.installation": (
        "build_info",
        "ccl_built",
        "check_num_rank_power_of_2",
        "cuda_built",
        "ddl_built",
        "gloo_built",
        "gloo_enabled",
        "mpi_built",
        "mpi_enabled",
        "mpi_threads_supported",
        "nccl_built",
        "rocm_built",
    ),
    "tfhvd.tf1.session_hook": ("BroadcastGlobalVariablesHook", "broadcast_global_variables"),
    "tfhvd.tape": ("DistributedGradientTape", "PartialDistributedGradientTape"),
    "tfhvd.timeline": ("start_timeline", "stop_timeline"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022 (in the order of the documentation)
    "__version__",
    "init",
    "shutdown",
    "is_initialized",
    "rank",
    "size",
    "local_rank",
    "local_size",
    "cross_rank",
    "cross_size",
    "is_homogeneous",
    "on_membership_change",
    "request_stop",
    "should_stop",
    "StopRequested",
    "data",
    "checkpoint",
    "elastic",
    "allreduce",
    "grouped_allreduce",
    "allgather",
    "grouped_allgather",
    "reducescatter",
    "grouped_reducescatter",
    "alltoall",
    "join",
    "broadcast",
    "broadcast_",
    "barrier",
    "batch_weight",
    "broadcast_variables",
    "broadcast_global_variables",
    "BroadcastGlobalVariablesHook",
    "broadcast_object",
    "broadcast_object_fn",
    "allgather_object",
    "check_divergence",
    "shard",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "is_distributed",
    "scaled_lr",
    "SyncBatchNormalization",
    "Compression",
    "ReduceOp",
    "Average",
    "Sum",
    "Min",
    "Max",
    "Product",
    "Adasum",
    "ProcessSet",
    "global_process_set",
    "add_process_set",
    "remove_process_set",
    "get_process_set_ids_and_ranks",
    "rank_op",
    "local_rank_op",
    "size_op",
    "local_size_op",
    "process_set_included_op",
    "load_ops",
    "profile",
    "start_timeline",
    "stop_timeline",
    "metrics",
    "Metrics",
    "run",
    "build_info",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "gloo_built",
    "gloo_enabled",
    "nccl_built",
    "cuda_built",
    "rocm_built",
    "ccl_built",
    "ddl_built",
    "check_num_rank_power_of_2",
    "TfhvdError",
    "NotInitializedError",
    "InvalidSettingError",
    "PeerLostError",
    "NotSynchronizedError",
    "RankFailedError",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
