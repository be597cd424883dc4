"""TensorFlowKerasState and KerasState: a Keras model, its optimizer, and Python objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfhvd.compat import keras as keras_compat
from tfhvd.elastic.state import ON_THE_HOST, ObjectState
from tfhvd.elastic.tensorflow_state import TensorFlowState
from tfhvd.keras.wrap.model_state import broadcast_state

if TYPE_CHECKING:
    from tfhvd.compat.types import Model, Optimizer, Variable


class TensorFlowKerasState(TensorFlowState):
    """A state of a model of either Keras, its optimizer, and Python objects.

    Args:
        model: a built model.
        optimizer: the optimizer of the model; None for the optimizer of `compile`.
        backend: ignored; Horovod has this argument.
        **kwargs: as for `ObjectState`, such as `epoch=0, batch=0`.

    Example:
        >>> state = hvd.elastic.TensorFlowKerasState(model, epoch=0, batch=0)
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer | None = None,
        backend: Any = None,
        **kwargs: Any,
    ) -> None:
        del backend
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        super().__init__((), **kwargs)

    def sync(self) -> None:
        """Gives all ranks rank 0's weights, optimizer and attributes, and saves them."""
        optimizers = [] if self.optimizer is None else [self.optimizer]
        broadcast_state(self.model, optimizers, 0, device=ON_THE_HOST)
        ObjectState.sync(self)  # past the parent's, which broadcasts variables alone
        self._save_variables()

    def variables_of_all(self) -> list[Variable]:
        """Lists the variables of the model and of the optimizer, which may create some later."""
        return [*self.model.variables, *keras_compat.optimizer_variables(self.optimizer)]


class KerasState(TensorFlowKerasState):
    """TensorFlowKerasState by its name in `horovod.keras.elastic`.

    Args:
        model: as for `TensorFlowKerasState`.
        backend: ignored; Horovod has this argument.
        **kwargs: as for `TensorFlowKerasState`.

    Example:
        >>> state = hvd.elastic.KerasState(model, epoch=0)
    """

    def __init__(self, model: Model, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, None, backend, **kwargs)
