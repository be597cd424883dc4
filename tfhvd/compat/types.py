"""What objects of TensorFlow, of the two Keras and of mpi4py are called in annotations.

For readers and type checkers: nothing imports this file when a program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from mpi4py import MPI

# What a user may pass where a tensor is needed.
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
# Of packages that give no types: a name says what it is.
Nested = Any  # tensors, variables and None, in lists, tuples and dicts as tf.nest takes them
ArrayStore = Any  # where Keras 3 keeps a layer's arrays in a file: its own store, or h5py's group

Logs = Optional[dict[str, Union[float, tf.Tensor]]]  # what `fit` tells callbacks

# What is called with a method of a model, in the place of that.
Instead = Callable[[Callable[[], Any]], Any]

Session = tf.compat.v1.Session
Communicator = MPI.Comm
