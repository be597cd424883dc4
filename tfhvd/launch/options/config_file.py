"""``--config-file``: a YAML file of options, with their names or in Horovod's sections."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfhvd.launch.errors import UsageError
from tfhvd.launch.options.parser import Parser, Value

# Sections of Horovod's files -> the beginning of the names of their options.
SECTIONS = {
    "params": "",
    "autotune": "autotune_",
    "timeline": "timeline_",
    "stall_check": "stall_check_",
    "library_options": "",
    "logging": "log_",
}


def read(path: Path, parser: Parser) -> dict[str, Any]:
    """Returns the options of a file in the form in which `parser` returns those of a command line.

    Raises UsageError with the name of the file.
    """
    try:
        return parser.read(list(words(_load(path), parser)))
    except UsageError as error:
        raise UsageError(f"--config-file {path}: {error}") from error


def _load(path: Path) -> Mapping[str, Any]:
    try:
        import yaml  # here, because no other module needs it, and tfhvd does not require it
    except ImportError as error:
        raise UsageError("it takes PyYAML to read it. Type: pip install pyyaml") from error
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise UsageError(f"it cannot be read: {reason}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"it is not YAML: {' '.join(str(error).split())}") from error
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise UsageError("it must have lines as in num-proc: 4")
    return data


def words(data: Mapping[str, Any], parser: Parser) -> Iterator[str]:
    """Yields the arguments of a command line with the same meaning.

    Example: ``{"timeline": {"filename": "t.json"}, "verbose": True}`` gives
    ``--timeline-filename=t.json`` and ``--verbose``.
    """
    options = {
        flag.lstrip("-").replace("-", "_"): (flag, option)
        for option in parser.options
        for flag in option.option_strings
        if len(flag) > 2
    }
    for name, value in _flat(data):
        yield from _words_of(name, value, options)


def _flat(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the names of options, with underscores, and their values."""
    for key, value in data.items():
        name = str(key).replace("-", "_")
        if name not in SECTIONS or not isinstance(value, Mapping):
            yield name, value
            continue
        for inner, said in value.items():
            # `stall_check: {enabled: false}` means `stall_check: false`.
            whole = name if inner == "enabled" else SECTIONS[name] + str(inner).replace("-", "_")
            yield whole, said


def _words_of(
    name: str, value: Any, options: Mapping[str, tuple[str, argparse.Action]]
) -> Iterator[str]:
    opposite = name[3:] if name.startswith("no_") else f"no_{name}"
    if name not in options and opposite not in options:
        near = difflib.get_close_matches(name, options, n=1, cutoff=0.7)
        hint = f"Did you mean {near[0]}?" if near else "tfhvdrun --help lists the options"
        raise UsageError(f"there is no option {name}. {hint}")
    flag, option = options.get(name) or options[opposite]
    if value is None:
        return
    if option.nargs == 0:
        if not isinstance(value, bool):
            raise UsageError(f"{name} must be true or false. Received: {value!r}")
        wanted = name if value else opposite
        if wanted in options:
            yield options[wanted][0]
    elif isinstance(value, Mapping):
        for key, said in value.items():
            yield f"{flag}={key}" + ("" if said is None else f"={_text(said)}")
    elif not isinstance(value, list):
        yield f"{flag}={_text(value)}"
    elif option.nargs is not None:
        yield from (flag, *map(_text, value))
    elif isinstance(option, Value) and option.repeated:
        yield from (f"{flag}={_text(each)}" for each in value)
    else:
        yield f"{flag}={','.join(map(_text, value))}"


def _text(value: Any) -> str:
    """Returns a value as a user would type it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
