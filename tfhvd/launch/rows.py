"""Options as rows: what `Parser.add_options` takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfhvd.launch.parser import Row, Value


def switch(*flags: str, dest: str, help: str) -> Row:
    """One without a value."""
    return {"flags": flags, "dest": dest, "help": help, "action": "store_true"}


def setting(*flags: str, dest: str, to: str, help: str) -> Row:
    """A switch that gives a setting a value."""
    return {"flags": flags, "dest": dest, "help": help, "action": "store_const", "const": to}


def value(
    *flags: str,
    dest: str,
    metavar: str | tuple[str, ...],
    help: str,
    convert: Callable[[Any], object] = str,
    **more: Any,
) -> Row:
    """One with a value, which `convert` reads."""
    return {
        "flags": flags,
        "dest": dest,
        "metavar": metavar,
        "help": help,
        "action": Value,
        "convert": convert,
        **more,
    }
