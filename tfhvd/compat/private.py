"""Access to private parts of Keras and TensorFlow, with an error if a part is missing.

Keras and TensorFlow may rename private parts in any release. The other modules of this package get
such parts from here, and name the purpose of each part. If a release lacks a part, its first use
raises an error, which names the release, the purpose, and the releases that have the part.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfhvd.errors import UnavailableError

if TYPE_CHECKING:
    from tfhvd.compat.types import Optimizer, Session, Variable

# Package -> the releases with which tfhvd was tested, and pip's form of them.
_KNOWN = {
    "keras": ("3.5 to 3.15", "keras>=3.5,<3.16"),
    "tf_keras": ("2.16 to 2.21", "tf-keras>=2.16,<2.22"),
    "tensorflow": ("2.16 to 2.21", "tensorflow>=2.16,<2.22"),
}


def missing(package: str, name: str, use: str) -> UnavailableError:
    """Makes the error for a part that the installed release lacks.

    Args:
        package: "keras", "tf_keras" or "tensorflow".
        name: the name of the part, as in "Model.make_train_function".
        use: the purpose in tfhvd, as in "keep the ranks in step".
    """
    version = sys.modules[package].__version__
    known, requirement = _KNOWN[package]
    return UnavailableError(
        f"{package} {version} has no {name}, which tfhvd needs to {use}; tfhvd works with "
        f"{package} {known}. Type: pip install '{requirement}', or install a newer tfhvd."
    )


def owner_of(cls: type, name: str, use: str) -> type:
    """Returns the class that defines a method of `cls`: `cls` itself or a base class.

    Raises:
        UnavailableError: if there is none.
    """
    for owner in cls.__mro__:
        if name in vars(owner):
            return owner
    raise missing(_package_of(cls), f"{cls.__name__}.{name}", use)


def is_better(checkpoint: Any, value: float) -> bool:
    """Returns whether a value is better than the best value of a ModelCheckpoint so far."""
    if checkpoint.monitor_op is None:  # newer releases of Keras 3 set it at the first value
        attribute(checkpoint, "_set_monitor_op", "know the best of what others have monitored")()
    return checkpoint.best is None or bool(checkpoint.monitor_op(value, checkpoint.best))


def replace_method(
    owner: type | ModuleType, name: str, make: Callable[[Any], Callable[..., Any]]
) -> None:
    """Replaces a method permanently, unless it is replaced already.

    Args:
        owner: the class, or the module, of Keras.
        name: the name of the method, which the class may inherit.
        make: takes the method, and returns the replacement.
    """
    original = getattr(owner, name)
    if original_of(original) is original:
        setattr(owner, name, remember_original(functools.wraps(original)(make(original)), original))


def remember_original(replacement: Callable[..., Any], original: Any) -> Callable[..., Any]:
    """Notes the original on its replacement; returns the replacement."""
    vars(replacement)[_ORIGINAL] = original
    return replacement


def original_of(function: Any) -> Any:
    """Returns the original of a replacement; any other function itself."""
    return getattr(function, _ORIGINAL, function)


def attribute(thing: object, name: str, use: str) -> Any:
    """Returns an attribute of an object of Keras or TensorFlow.

    Raises:
        UnavailableError: if there is none.
    """
    found = getattr(thing, name, _NOTHING)
    if found is _NOTHING:
        raise missing(_package_of(type(thing)), f"{type(thing).__name__}.{name}", use)
    return found


@functools.cache
def of_module(module: str, name: str, use: str) -> Any:
    """Returns an attribute of a private module.

    Raises:
        UnavailableError: if there is no such module, or no such name in it.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise missing(module.partition(".")[0], f"{module}.{name}", use) from None


def trained_by(optimizer: Optimizer) -> list[Variable]:
    """Lists the variables for which an optimizer of Keras 3 was built."""
    return attribute(optimizer, "_trainable_variables", "know what it updates")


def has_weight_decay(optimizer: Optimizer, variable: Variable) -> bool:
    """Returns whether an optimizer of Keras 3 decays a variable: the user may exclude some."""
    decays = attribute(optimizer, "_use_weight_decay", "know what has no weight decay")
    return bool(decays(variable))


def index_of(optimizer: Optimizer, variable: Variable) -> int:
    """Returns the index of a variable among the variables of an optimizer of Keras 3."""
    return attribute(optimizer, "_get_variable_index", "know which variable it updates")(variable)


def iterations_of(optimizer: Optimizer) -> Variable:
    """Returns the counter of calls of an optimizer of Keras 3, also of those that only accumulate.

    The public `iterations` counts updates.
    """
    return attribute(optimizer, "_iterations", "weigh what it accumulates")


def require_hook(optimizer: Optimizer, method: str) -> None:
    """Makes sure that an optimizer has the method in which tfhvd reduces its gradients.

    Raises:
        UnavailableError: if this Keras has no such method.
    """
    attribute(optimizer, method, "reduce its gradients")


def session_of_tf_keras() -> Session:
    """Returns the session in which tf_keras initializes the variables of its models.

    Keras 3 has no session: it makes no models in graphs of TensorFlow 1.
    """
    module = "tf_keras.api._v1.keras.backend"
    return of_module(module, "get_session", "find the session of its models")()


_NOTHING = object()
_ORIGINAL = "_tfhvd_original"  # an attribute of the functions that replace others


def _package_of(cls: type) -> str:
    """Returns the known package of a class or of its base classes: the class may be the user's."""
    roots = (base.__module__.partition(".")[0] for base in cls.__mro__)
    return next((root for root in roots if root in _KNOWN), "keras")
