"""BroadcastGlobalVariablesCallback: all ranks start from the state of one."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorflow as tf

from tfhvd import _compat
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.optimizer import shared_state
from tfhvd.local_sources import LocalSources, key_of
from tfhvd.ops import broadcast_variables

_logger = logging.getLogger("tfhvd")


class _Numbered(NamedTuple):
    """A variable by its number: Keras names it otherwise where a model was built another way."""

    path: str
    value: tf.Variable


class BroadcastGlobalVariablesCallback(Callback):
    """Gives all ranks one rank's weights and optimizer state, before the first gradient.

    A model that makes its variables on its first batch only is built from the shapes of that batch
    first. The seeds of random layers stay each rank's own.

    Args:
        root_rank: the rank whose state it is.
        device: the device on which the variables are broadcast, "" for where they are.
        local_variables: variables that each rank keeps as they are, the same ones on every rank.

    Example:
        >>> model.fit(dataset, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    """

    def __init__(
        self, root_rank: int = 0, device: str = "", local_variables: Iterable[Any] | None = None
    ) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self._local = LocalSources()
        for variable in local_variables or ():
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Excepts a variable from the broadcast.

        Args:
            var: a variable of the model, or of its optimizer.
        """
        self._local.add(var)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Broadcasts, or arranges for it once the model can be built."""
        if _compat.all_built(self.model):
            self._broadcast()
        else:
            self._broadcast_before_first_step()

    def _broadcast(self) -> None:
        model, optimizer = self.model, getattr(self.model, "optimizer", None)
        if optimizer is not None:
            _compat.build_optimizer(optimizer, model.trainable_variables)
        variables = _compat.model_state(model) + _compat.optimizer_variables(optimizer)
        variables += shared_state(optimizer, model.trainable_variables)
        local = self._local.keys()
        numbered = [
            _Numbered(str(n), _compat.tf_variable(v))
            for n, v in enumerate(variables)
            if key_of(v) not in local
        ]
        with tf.device(self.device or None):
            broadcast_variables(numbered, root_rank=self.root_rank)

    def _broadcast_before_first_step(self) -> None:
        """Puts itself before the model's first training step, where data is first seen."""
        model, step = self.model, self.model.train_function

        def broadcast_then_step(iterator: Any) -> Any:
            model.train_function = step
            built = self._build(iterator)
            if built:
                self._broadcast()
            result = step(iterator)
            if not built:
                self._broadcast()
            return result

        model.train_function = broadcast_then_step

    def _build(self, iterator: Any) -> bool:
        """Makes all variables, by tracing a step that never runs; says whether it could."""
        model = self.model
        try:
            spec = tf.nest.map_structure(
                lambda s: None if isinstance(s, tf.OptionalSpec) else s, iterator.element_spec
            )
            tf.function(lambda data: model.train_step(data)).get_concrete_function(spec)
        except Exception as error:  # Whatever a user's train_step may raise when it is traced.
            _logger.warning(
                "tfhvd could not build the model before its first batch (%s: %s). Its variables "
                "are broadcast after the first update instead. Expected: a model that is built, as "
                "by model.build(shape).",
                type(error).__name__,
                error,
            )
            return False
        return True
