"""Callbacks for `fit`, of Keras 3 and of tf_keras."""

from tfhvd.keras.callbacks.best_model_checkpoint import BestModelCheckpoint
from tfhvd.keras.callbacks.broadcast_global_variables import BroadcastGlobalVariablesCallback
from tfhvd.keras.callbacks.checkpoint import Checkpoint
from tfhvd.keras.callbacks.commit_state import CommitStateCallback
from tfhvd.keras.callbacks.csv_logger import CSVLogger
from tfhvd.keras.callbacks.divergence import DivergenceCallback
from tfhvd.keras.callbacks.elastic import ElasticCallback
from tfhvd.keras.callbacks.learning_rate_schedule import LearningRateScheduleCallback
from tfhvd.keras.callbacks.learning_rate_warmup import LearningRateWarmupCallback
from tfhvd.keras.callbacks.metric_average import MetricAverageCallback
from tfhvd.keras.callbacks.metrics import MetricsCallback
from tfhvd.keras.callbacks.model_checkpoint import ModelCheckpoint
from tfhvd.keras.callbacks.profile import ProfileCallback
from tfhvd.keras.callbacks.tensor_board import TensorBoard
from tfhvd.keras.callbacks.update_batch_state import UpdateBatchStateCallback
from tfhvd.keras.callbacks.update_epoch_state import UpdateEpochStateCallback

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "CSVLogger",
    "Checkpoint",
    "CommitStateCallback",
    "DivergenceCallback",
    "ElasticCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "MetricsCallback",
    "ModelCheckpoint",
    "ProfileCallback",
    "TensorBoard",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]
