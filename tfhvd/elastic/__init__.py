"""Horovod's elastic API: `hvd.elastic.run`, states with commits, and Keras callbacks.

This API is for scripts that use it already. A job of `tfhvdrun --elastic` loses no step when ranks
fail, with or without this API: nothing is rolled back. With the API, the next commit after a
failure calls the function again, so that a script can divide its work among the remaining ranks.

Example:
    >>> state = hvd.elastic.TensorFlowKerasState(model, epoch=0)
    >>> @hvd.elastic.run
    ... def train(state):
    ...     for state.epoch in range(state.epoch, 3):
    ...         model.fit(x, y, verbose=0)
    ...         state.commit()
    >>> train(state)
"""

from tfhvd.elastic.errors import HorovodInternalError, HostsUpdatedInterrupt
from tfhvd.elastic.keras_state import KerasState, TensorFlowKerasState
from tfhvd.elastic.run import run
from tfhvd.elastic.state import ObjectState, State
from tfhvd.elastic.tensorflow_state import TensorFlowState
from tfhvd.keras.callbacks.commit_state import CommitStateCallback
from tfhvd.keras.callbacks.update_batch_state import UpdateBatchStateCallback
from tfhvd.keras.callbacks.update_epoch_state import UpdateEpochStateCallback

__all__ = [
    "CommitStateCallback",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "KerasState",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
