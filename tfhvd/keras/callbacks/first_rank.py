"""What the callbacks share that one rank has for all: Keras' own, which write files."""

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
    """Whether this rank is the first of those that train a model.

    Of an elastic job it becomes the first where those before it are lost.

    Attributes:
        here: whether it is.
    """

    def __init__(self) -> None:
        self.here = False
        self._generation = 0

    def find(self, model: Model) -> None:
        """Looks at the ranks that train a model."""
        self._generation = membership.generation()
        self.here = is_on_first_rank(model)

    def has_come(self, model: Model) -> bool:
        """Whether this rank has become the first since it has looked."""
        if self.here or membership.generation() == self._generation:
            return False
        membership.refresh()
        self.find(model)
        return self.here


class FirstRankCallback(Callback):
    """A callback of Keras that is called on the first rank of those that train the model, alone.

    Where that is lost, in an elastic job, it is called on the next one from then on, which appends
    to what there is, and goes by what was best before.

    A class inherits from it and from the `tf.keras` callback. A model of the other Keras has that
    one's callback, made with the same arguments.

    Attributes:
        keras_name: what both Keras call it.
        results: the attributes that the callback changes for users to read.
    """

    keras_name = ""
    results: tuple[str, ...] = ()

    def __init_subclass__(cls, hooks: tuple[str, ...] = (), **kwargs: Any) -> None:
        """Takes the hooks that Keras' callback has: it is called in none that it has not."""
        super().__init_subclass__(**kwargs)
        for hook in hooks:
            setattr(cls, hook, _on_the_first_rank(hook))

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._arguments = (args, kwargs)
        self._first = FirstRank()
        # What has begun and has not ended, and what was said as it began: for who takes over.
        self._begun: dict[str, tuple[object, ...]] = {}
        self._of_other_keras: Any = None

    def set_model(self, model: Model) -> None:
        """Takes the model, and finds out who writes for it."""
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
        """Calls a hook of whoever writes: this object as Keras' callback, or the other Keras'."""
        what, _, moment = hook.rpartition("_")
        if hook == "on_train_begin":
            self._begun.clear()  # a training may have ended with an error
        if moment == "begin":
            self._begun[what] = args
        if self._first.has_come(self.model):
            self._take_over()
            if moment == "begin":
                return  # it was called
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
        """Returns what Keras' hooks are called in."""
        return contextlib.nullcontext()

    @property
    def _may_write(self) -> bool:
        """Whether this rank writes, or will if others are lost."""
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
        """Says what the callback of tf_keras says, which alone asks."""
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
