"""Horovod's elastic API: `hvd.elastic.run`, states that are committed, and Keras callbacks.

For scripts that have it. A job of `tfhvdrun --elastic` loses no step where it loses ranks, with or
without this: nothing is rolled back. What it adds is that the function is called anew at a commit
after ranks were lost, so that a script can divide its work among those that are left.

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
