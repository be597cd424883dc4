"""Names for annotations of objects of TensorFlow, of the two Keras and of mpi4py.

They are for readers and type checkers: no module imports this file when a program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from mpi4py import MPI

# The values that a user may pass as a tensor.
TensorLike = Union[
    tf.Tensor, tf.Variable, np.ndarray, bool, int, float, complex, Sequence[Any], np.generic
]
Variable = Union[tf.Variable, keras.Variable]
Gradient = Union[tf.Tensor, tf.IndexedSlices, None]
GradientsAndVariables = list[tuple[Gradient, Variable]]

# Of Keras 3 or of tf_keras.
Model = Union[keras.Model, tf_keras.Model]
Layer = Union[keras.layers.Layer, tf_keras.layers.Layer]
Metric = Union[keras.metrics.Metric, tf_keras.metrics.Metric]
Optimizer = Union[
    keras.optimizers.Optimizer,
    tf_keras.optimizers.Optimizer,
    tf_keras.optimizers.legacy.Optimizer,
]
Callback = Union[keras.callbacks.Callback, tf_keras.callbacks.Callback]
CallbackList = Union[keras.callbacks.CallbackList, tf_keras.callbacks.CallbackList]
Callbacks = Union[CallbackList, Callback, Sequence[Callback], None]
# Names for objects of packages without types.
Nested = Any  # tensors, variables and None, in lists, tuples and dicts as tf.nest takes them
ArrayStore = Any  # holds a layer's arrays in a file of Keras 3: its store, or a group of h5py

Logs = Optional[dict[str, Union[float, tf.Tensor]]]  # the logs that `fit` passes to callbacks

# A function that is called with a method of a model, and runs instead of it.
Instead = Callable[[Callable[[], Any]], Any]

Session = tf.compat.v1.Session
Communicator = MPI.Comm
