"""FirstRankCallback: the base of Keras' callbacks that write files, on one rank for all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.wrap.model_state import is_on_first_rank
from tfhvd.runtime.membership import membership

if TYPE_CHECKING:
    from tfhvd.compat.types import Model


class FirstRank:
    """Knows whether this rank is the first of the ranks that train a model.

    In an elastic job this rank becomes the first when all ranks before it have failed.

    Attributes:
        here: whether this rank is the first.
    """

    def __init__(self) -> None:
        self.here = False
        self._generation = 0

    def find(self, model: Model) -> None:
        """Finds out whether this rank is the first of the ranks that train a model."""
        self._generation = membership.generation()
        self.here = is_on_first_rank(model)

    def has_come(self, model: Model) -> bool:
        """Whether this rank has become the first since the last `find`."""
        if self.here or membership.generation() == self._generation:
            return False
        membership.refresh()
        self.find(model)
        return self.here


class FirstRankCallback(Callback):
    """A callback of Keras that acts only on the first of the ranks that train the model.

    If this rank fails in an elastic job, the callback acts on the next rank. It then appends to the
    existing files, and knows the best value of the metric so far.

    A class inherits from FirstRankCallback and from the `tf.keras` callback. For a model of the
    other Keras, it makes the other Keras' callback with the same arguments.

    Attributes:
        keras_name: the name of the callback in both Keras.
        results: the attributes that the callback changes for users to read.
    """

    keras_name = ""
    results: tuple[str, ...] = ()

    def __init_subclass__(cls, hooks: tuple[str, ...] = (), **kwargs: Any) -> None:
        """Defines the hooks of Keras' callback, and no others, in the subclass."""
        super().__init_subclass__(**kwargs)
        for hook in hooks:
            setattr(cls, hook, _on_the_first_rank(hook))

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._arguments = (args, kwargs)
        self._first = FirstRank()
        # The hooks of begin without their end, with their arguments, for a rank that takes over.
        self._begun: dict[str, tuple[object, ...]] = {}
        self._of_other_keras: Any = None

    def set_model(self, model: Model) -> None:
        """Takes the model, and finds out which rank writes for it."""
        self._first.find(model)
        cls = getattr(keras_compat.keras_of(model).callbacks, self.keras_name)
        if isinstance(self, cls):
            self._of_other_keras = None
            if self._first.here:
                super().set_model(model)
                return
        elif self._may_write and not isinstance(self._of_other_keras, cls):
            args, kwargs = self._arguments
            self._of_other_keras = cls(*args, **kwargs)
        tf.keras.callbacks.Callback.set_model(self, model)
        if self._first.here:
            self._of_other_keras.set_model(model)

    def set_params(self, params: dict[str, object]) -> None:
        """Takes the parameters of `fit`."""
        super().set_params(params)
        if self._of_other_keras is not None:
            self._of_other_keras.set_params(params)

    def tell(self, hook: str, *args: object, **kwargs: object) -> None:
        """Calls a hook of the callback that writes: of this object, or of the other Keras'."""
        what, _, moment = hook.rpartition("_")
        if hook == "on_train_begin":
            self._begun.clear()  # a training may have ended with an error
        if moment == "begin":
            self._begun[what] = args
        if self._first.has_come(self.model):
            self._take_over()
            if moment == "begin":
                return  # `_take_over` has called the hook
        if moment == "end":
            self._begun.pop(what, None)
        if not self._first.here:
            return
        with self._around_hook():
            if self._of_other_keras is None:
                getattr(super(), hook)(*args, **kwargs)
                return
            getattr(self._of_other_keras, hook)(*args, **kwargs)
        for name in self.results:
            setattr(self, name, getattr(self._of_other_keras, name))

    def _around_hook(self) -> contextlib.AbstractContextManager[None]:
        """Returns the context for the calls of Keras' hooks."""
        return contextlib.nullcontext()

    @property
    def _may_write(self) -> bool:
        """Whether this rank writes, or will write if other ranks fail."""
        return self._first.here or membership.is_elastic

    def _take_over(self) -> None:
        """Begins to write in the middle of a training."""
        self.set_model(self.model)
        self.set_params(self.params)
        writer = self if self._of_other_keras is None else self._of_other_keras
        keras_compat.go_on_with(writer, getattr(self.model, "history", None))
        for what, args in list(self._begun.items()):
            getattr(self, f"{what}_begin")(*args)

    def _implements_train_batch_hooks(self) -> bool:
        return self._implements("_implements_train_batch_hooks")

    def _implements_test_batch_hooks(self) -> bool:
        return self._implements("_implements_test_batch_hooks")

    def _implements(self, hooks: str) -> bool:
        """Returns the answer of tf_keras' callback; only tf_keras asks."""
        if not self._may_write:
            return False
        asked = super(Callback, self) if self._of_other_keras is None else self._of_other_keras
        return bool(getattr(asked, hooks)())


def _on_the_first_rank(name: str) -> Callable[..., None]:
    def hook(self: FirstRankCallback, *args: object, **kwargs: object) -> None:
        self.tell(name, *args, **kwargs)

    hook.__name__ = name
    hook.__doc__ = f"Calls Keras' `{name}` on the first rank."
    return hook
