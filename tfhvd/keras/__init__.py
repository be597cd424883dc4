"""Data-parallel training of Keras models: `import tfhvd.keras as hvd`.

Follows `tf.keras` (Keras 3, or tf_keras where TF_USE_LEGACY_KERAS=1), and takes optimizers and
models of a directly imported `keras` or `tf_keras` just as well.

Example:
    >>> import tfhvd.keras as hvd
    >>> hvd.init()
    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size()))
    >>> model.compile(optimizer, loss="mse")
    >>> callbacks = [hvd.BroadcastGlobalVariablesCallback(0), hvd.MetricAverageCallback()]
    >>> model.fit(x, y, callbacks=callbacks)
"""

from tfhvd import (
    Adasum,
    Average,
    Compression,
    DistributedGradientTape,
    InvalidSettingError,
    Max,
    Min,
    NotInitializedError,
    NotSynchronizedError,
    PartialDistributedGradientTape,
    PartialDistributedOptimizer,
    PeerLostError,
    ProcessSet,
    Product,
    RankFailedError,
    Sum,
    TfhvdError,
    add_process_set,
    allgather_object,
    barrier,
    broadcast_object,
    broadcast_variables,
    build_info,
    ccl_built,
    check_num_rank_power_of_2,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    get_process_set_ids_and_ranks,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_distributed,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    run,
    scaled_lr,
    shard,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from tfhvd.keras import callbacks, optimizers
from tfhvd.keras.batch_norm import SyncBatchNormalization
from tfhvd.keras.callbacks import (
    BestModelCheckpoint,
    BroadcastGlobalVariablesCallback,
    CSVLogger,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
    ModelCheckpoint,
    TensorBoard,
)
from tfhvd.keras.collectives import allgather, allreduce, broadcast
from tfhvd.keras.fit_sync import keep_imported_in_step
from tfhvd.keras.global_variables import broadcast_global_variables
from tfhvd.keras.load_model import load_model
from tfhvd.keras.optimizer import DistributedOptimizer
from tfhvd.keras.progress_bars import progress_bars
from tfhvd.ops.batch_moments import synchronize_keras

__all__ = [
    "Adasum",
    "Average",
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "CSVLogger",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "InvalidSettingError",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "Max",
    "MetricAverageCallback",
    "Min",
    "ModelCheckpoint",
    "NotInitializedError",
    "NotSynchronizedError",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "PeerLostError",
    "ProcessSet",
    "Product",
    "RankFailedError",
    "Sum",
    "SyncBatchNormalization",
    "TensorBoard",
    "TfhvdError",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "build_info",
    "callbacks",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "get_process_set_ids_and_ranks",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_distributed",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "optimizers",
    "progress_bars",
    "rank",
    "remove_process_set",
    "rocm_built",
    "run",
    "scaled_lr",
    "shard",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

synchronize_keras()
keep_imported_in_step()
