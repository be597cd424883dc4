"""Writes down the public names of tfhvd with their signatures: `python tests/public_api.py`."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

SNAPSHOT = Path(__file__).with_name("public_api.txt")
COMMAND = "python tests/public_api.py > tests/public_api.txt"
MODULES = (
    *("tfhvd", "tfhvd.keras", "tfhvd.keras.callbacks", "tfhvd.keras.optimizers"),
    *("tfhvd.data", "tfhvd.checkpoint", "tfhvd.elastic"),
)


def lines() -> list[str]:
    """One line per public name, and per public method of the classes."""
    found = []
    for module in MODULES:
        names = importlib.import_module(module)
        for name in sorted(names.__all__):
            found += _of(f"{module}.{name}", getattr(names, name))
    return found


def public() -> list[tuple[str, Any]]:
    """Every public function, class and method of ours, once, with its name."""
    things: dict[int, tuple[str, Any]] = {}
    for module in MODULES:
        names = importlib.import_module(module)
        for name in names.__all__:
            thing = getattr(names, name)
            if inspect.isfunction(thing) or inspect.isclass(thing):
                things.setdefault(id(thing), (f"{module}.{name}", thing))
    return list(things.values())


def _of(name: str, thing: Any) -> list[str]:
    if inspect.ismodule(thing):
        return [f"{name}: module"]
    if inspect.isclass(thing):
        if issubclass(thing, (BaseException, enum.Enum)):
            return [f"{name}: {thing.__mro__[1].__name__}"]
        own = [
            f"{name}.{method}{_signature(value)}"
            for method, value in sorted(vars(thing).items())
            if not method.startswith("_") and inspect.isfunction(value)
        ]
        return [f"{name}{_signature(thing)}", *own]
    if inspect.isfunction(thing):
        return [f"{name}{_signature(thing)}"]
    return [f"{name}: {type(thing).__name__}"]


def _signature(thing: Any) -> str:
    """A signature without annotations, and without what differs from one run to the next."""
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return "(...)"
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    text = re.sub(r"ProcessSet\([^)]*\)", "global_process_set", text)
    return re.sub(r"<class '[\w.]*\.(\w+)'>", r"\1", text)


if __name__ == "__main__":
    print("\n".join(lines()))
