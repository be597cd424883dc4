"""TensorFlowState: variables of TensorFlow, and Python objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfhvd.compat.variables import tf_variable
from tfhvd.elastic.state import ON_THE_HOST, ObjectState
from tfhvd.ops import broadcast_variables

if TYPE_CHECKING:
    from tfhvd.compat.types import Variable


class TensorFlowState(ObjectState):
    """A state of variables and Python objects.

    Args:
        variables: of TensorFlow or either Keras; None for all global variables of TensorFlow 1.
        session: taken for Horovod's sake: must be None.
        **kwargs: as for `ObjectState`.

    Raises:
        ValueError: for a session.

    Example:
        >>> state = hvd.elastic.TensorFlowState(model.variables, epoch=0)
    """

    def __init__(
        self, variables: Iterable[Variable] | None = None, session: Any = None, **kwargs: Any
    ) -> None:
        if session is not None:
            raise ValueError(
                "TensorFlowState: sessions are not supported; leave out `session`, and use "
                "TensorFlow 2's eager execution."
            )
        given = tf.compat.v1.global_variables() if variables is None else variables
        self._variables = list(given)
        self._values: list[np.ndarray] = []
        super().__init__(**kwargs)
        self._save_variables()

    def save(self) -> None:
        """Keeps variables and attributes."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Goes back to what was saved last."""
        for variable, value in zip(self.variables_of_all(), self._values):
            tf_variable(variable).assign(value)
        super().restore()

    def sync(self) -> None:
        """Gives all ranks rank 0's variables and attributes, and saves them."""
        with tf.device(ON_THE_HOST):
            broadcast_variables(self.variables_of_all(), root_rank=0)
        super().sync()
        # Last, when nothing can fail any more: they and the attributes are of one state.
        self._save_variables()

    def variables_of_all(self) -> list[Variable]:
        """Lists the variables."""
        return self._variables

    def _save_variables(self) -> None:
        self._values = [tf_variable(variable).numpy() for variable in self.variables_of_all()]
