"""A second object over the state of a user's object: the way to wrap optimizers and tapes.

The second object shares the `__dict__` of the user's object. Its class inherits from a hook and
from the user's class. Both objects are therefore built and configured at the same time, and a value
that is set on one shows on the other. `isinstance` is true for the user's class, and only the
methods of the hook are different.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any, TypeVar

_Plain = TypeVar("_Plain")

if TYPE_CHECKING:
    _UsersClass = Any  # follows the hook among the base classes of a wrapped object
else:
    _UsersClass = object


class Wrapped(_UsersClass):
    """The base class of hooks, and so of every wrapped object; its only state is `_tfhvd`."""

    __slots__ = ()
    _tfhvd: Any  # the state of the hook, which the plain object does not share


def wrap(plain: _Plain, hook: type[Wrapped], own: object, *, disguised: bool = False) -> _Plain:
    """Makes the second object.

    Args:
        plain: the user's object.
        hook: the class whose methods override those of the user's class.
        own: the state of the hook, which its methods find as `self._tfhvd`.
        disguised: whether `__class__` gives the user's class, as Python allows for proxies. Keras
            writes this class into saved models, so that they open without tfhvd. `type()` and
            `isinstance` still see the class with the hook.

    Raises:
        ValueError: if the object is wrapped already.

    Example:
        >>> tape = wrap(tf.GradientTape(), Hook, own=reducer)
    """
    if isinstance(plain, Wrapped):
        raise ValueError(
            f"This {type(plain).__name__} is already wrapped for tfhvd; pass the original object."
        )
    cls: Any = type(plain)
    behind: Any = hook
    wrapped: Any = object.__new__(_subclass_of(cls, behind, disguised))
    # Without the user's __setattr__: that of Keras would track the values as state to save.
    object.__setattr__(wrapped, "__dict__", vars(plain))
    object.__setattr__(wrapped, "_tfhvd", own)
    return wrapped


@functools.cache
def _subclass_of(cls: Any, hook: Any, disguised: bool) -> type:
    body: dict[str, Any] = {
        "__slots__": ("_tfhvd",),  # since __dict__ is shared
        "__module__": cls.__module__,
        "__doc__": cls.__doc__,
    }
    if disguised:
        body["__class__"] = property(lambda self: cls)
    name = cls.__name__ if disguised else f"Distributed{cls.__name__}"
    return types.new_class(name, (hook, cls), exec_body=lambda namespace: namespace.update(body))
