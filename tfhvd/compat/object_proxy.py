"""A second object over the state of a user's object: how optimizers and tapes are wrapped.

The second object shares the first one's `__dict__` and is of a class that inherits from a hook, and
from the first one's class. So it is built if that is built, is configured as that is, `isinstance`
holds, and whatever is set on the one shows on the other; only the hook's methods differ.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any, TypeVar

_Plain = TypeVar("_Plain")

if TYPE_CHECKING:
    _UsersClass = Any  # comes behind the hook among the classes of a wrapped object
else:
    _UsersClass = object


class Wrapped(_UsersClass):
    """What every wrapped object is; a hook inherits from it, and has no state but `_tfhvd`."""

    __slots__ = ()
    _tfhvd: Any  # the hook's own, not shared with the plain object


def wrap(plain: _Plain, hook: type[Wrapped], own: object, *, disguised: bool = False) -> _Plain:
    """Makes the second object.

    Args:
        plain: the user's object.
        hook: the class whose methods come before those of the user's class.
        own: what the hook's methods find as `self._tfhvd`.
        disguised: whether `__class__` gives the user's class, as is allowed to objects that stand
            for others: Keras writes it into saved models, which so need no tfhvd to be opened.
            `type()` and `isinstance` see the class itself.

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
    # Past the user's __setattr__: Keras' would track the values as state to save.
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
