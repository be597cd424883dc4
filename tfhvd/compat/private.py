"""Private parts of Keras and TensorFlow: the way to them, and what is said where one is missing.

What Keras and TensorFlow keep to themselves they may rename in any release. The other modules of
this package come here for such parts, each with the use that tfhvd has for it, so that a release
which lacks one is named, with the releases that are known to have it, where the part is needed
first.
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

# Package -> the releases that tfhvd was tried with, and what pip calls them.
_KNOWN = {
    "keras": ("3.5 to 3.15", "keras>=3.5,<3.16"),
    "tf_keras": ("2.16 to 2.21", "tf-keras>=2.16,<2.22"),
    "tensorflow": ("2.16 to 2.21", "tensorflow>=2.16,<2.22"),
}


def missing(package: str, name: str, use: str) -> UnavailableError:
    """Makes the error for a part that the installed release lacks.

    Args:
        package: "keras", "tf_keras" or "tensorflow".
        name: of the part, as in "Model.make_train_function".
        use: what tfhvd does with it, as in "keep the ranks in step".
    """
    version = sys.modules[package].__version__
    known, requirement = _KNOWN[package]
    return UnavailableError(
        f"{package} {version} has no {name}, which tfhvd needs to {use}; tfhvd works with "
        f"{package} {known}. Type: pip install '{requirement}', or install a newer tfhvd."
    )


def owner_of(cls: type, name: str, use: str) -> type:
    """Returns the class, among those that `cls` inherits from, in which a method is defined.

    Raises:
        UnavailableError: if there is none.
    """
    for owner in cls.__mro__:
        if name in vars(owner):
            return owner
    raise missing(_package_of(cls), f"{cls.__name__}.{name}", use)


def is_better(checkpoint: Any, value: float) -> bool:
    """Whether a value of what a ModelCheckpoint monitors is better than the best so far."""
    if checkpoint.monitor_op is None:  # newer releases of Keras 3 set it with the first value
        attribute(checkpoint, "_set_monitor_op", "know the best of what others have monitored")()
    return checkpoint.best is None or bool(checkpoint.monitor_op(value, checkpoint.best))


def replace_method(
    owner: type | ModuleType, name: str, make: Callable[[Any], Callable[..., Any]]
) -> None:
    """Puts another function in the place of a method, for good; what is replaced already stays.

    Args:
        owner: the class, or the module, of Keras.
        name: the method's, in the class or in one that it inherits from.
        make: takes the method, and returns what is to be called instead.
    """
    original = getattr(owner, name)
    if original_of(original) is original:
        setattr(owner, name, remember_original(functools.wraps(original)(make(original)), original))


def remember_original(replacement: Callable[..., Any], original: Any) -> Callable[..., Any]:
    """Notes on a function in whose place it is; returns it."""
    vars(replacement)[_ORIGINAL] = original
    return replacement


def original_of(function: Any) -> Any:
    """Returns what a function is in the place of, else the function itself."""
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
    """Returns what a module that is not public has by that name.

    Raises:
        UnavailableError: if there is no such module, or no such name in it.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise missing(module.partition(".")[0], f"{module}.{name}", use) from None


def trained_by(optimizer: Optimizer) -> list[Variable]:
    """Lists the variables that an optimizer of Keras 3 was built for."""
    return attribute(optimizer, "_trainable_variables", "know what it updates")


def has_weight_decay(optimizer: Optimizer, variable: Variable) -> bool:
    """Whether `exclude_from_weight_decay` of an optimizer of Keras 3 has left a variable in."""
    decays = attribute(optimizer, "_use_weight_decay", "know what has no weight decay")
    return bool(decays(variable))


def index_of(optimizer: Optimizer, variable: Variable) -> int:
    """Returns the number of a variable among those that an optimizer of Keras 3 was built for."""
    return attribute(optimizer, "_get_variable_index", "know which variable it updates")(variable)


def iterations_of(optimizer: Optimizer) -> Variable:
    """Returns how many calls an optimizer of Keras 3 has had, those that only accumulate included.

    Its public `iterations` counts updates.
    """
    return attribute(optimizer, "_iterations", "weigh what it accumulates")


def require_hook(optimizer: Optimizer, method: str) -> None:
    """Makes sure that an optimizer has the method in which its gradients are to be reduced.

    Raises:
        UnavailableError: if its Keras does without.
    """
    attribute(optimizer, method, "reduce its gradients")


def session_of_tf_keras() -> Session:
    """Returns tf_keras' session, in which it initializes the variables of its models.

    Only tf_keras has one: Keras 3 makes no models in graphs of TensorFlow 1.
    """
    module = "tf_keras.api._v1.keras.backend"
    return of_module(module, "get_session", "find the session of its models")()


_NOTHING = object()
_ORIGINAL = "_tfhvd_original"  # an attribute of the functions that replace others


def _package_of(cls: type) -> str:
    """The package whose class it is, or which it inherits from: a user may have subclassed it."""
    roots = (base.__module__.partition(".")[0] for base in cls.__mro__)
    return next((root for root in roots if root in _KNOWN), "keras")
