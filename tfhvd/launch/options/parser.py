"""The parser of tfhvdrun's options: argparse, with one clear line for each mistake."""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tfhvd.launch.errors import UsageError
from tfhvd.launch.options import converters
from tfhvd.launch.options.horovod_table import IDLE

USAGE = "tfhvdrun -np N [-H host:slots,... | --hostfile FILE] [options] command [arguments ...]"
_END = """\
options of horovodrun that have no effect (each prints a warning):
{idle}

The ranks' stdin is empty, except with --pdb.
The exit code is that of the rank that failed first; 128 + N if signal N ended it."""


Row = dict[str, Any]  # an option: the arguments of `add_argument`, and its spellings as "flags"


class Value(argparse.Action):
    """An action that converts the option's text; errors name the spelling that the user typed."""

    def __init__(self, *, convert: Callable[[Any], object], repeated: bool = False, **more: Any):
        super().__init__(**more)
        self.convert, self.repeated = convert, repeated

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, text: Any, flag: str | None = None
    ) -> None:
        """Converts the text, and stores the value."""
        try:
            value = self.convert(text)
        except ValueError as error:
            raise UsageError(f"{flag} must be {error}. Received: {text!r}") from error
        if self.repeated:
            value = (*getattr(namespace, self.dest, ()), value)
        setattr(namespace, self.dest, value)


class Idle(argparse.Action):
    """An option of horovodrun that does nothing; it notes the reason."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, text: Any, flag: str | None = None
    ) -> None:
        """Notes the option."""
        notes = getattr(namespace, "warnings", ())
        namespace.warnings = (*notes, f"{flag} has no effect: {self.const}")


class Parser(argparse.ArgumentParser):
    """A parser whose result omits options that were not given; every mistake is a UsageError.

    Attributes:
        options: all options, in the order of the help text.
    """

    def __init__(self) -> None:
        super().__init__(
            prog="tfhvdrun",
            usage=USAGE,
            description="Runs the command N times, as the ranks of one job.",
            epilog=_END.format(idle=_idle_flags()),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
            add_help=False,
            exit_on_error=False,
        )
        self.options: list[argparse.Action] = []

    def add_options(self, title: str, *rows: Row) -> None:
        """Adds a group of options; for `rows` see Row."""
        group = self.add_argument_group(title)
        self.options += [group.add_argument(*row.pop("flags"), **row) for row in rows]

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Returns the given options by name, and the "command" behind them."""
        try:
            namespace, unknown = self.parse_known_args(list(words))
        except argparse.ArgumentError as error:
            raise UsageError(self._explain(error)) from error
        if unknown:
            raise UsageError(self._unknown(unknown[0].partition("=")[0]))
        return vars(namespace)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError; argparse calls this method for errors that have only a text."""
        raise UsageError(message)

    def _explain(self, error: argparse.ArgumentError) -> str:
        named = (o for o in self.options if "/".join(o.option_strings) == error.argument_name)
        option = next(named, None)
        if option is None:  # such as "ambiguous option: -ho could match ..."
            return str(error)
        flag = option.option_strings[0]
        if option.nargs == 0:
            return f"{flag} takes no value"
        said = f"{flag} needs a value: {flag} {option.metavar or 'VALUE'}"
        if getattr(option, "convert", None) is converters.words:
            said += f". One that begins with a dash is written with =, as in {flag}=--quiet"
        return said

    def _unknown(self, flag: str) -> str:
        flags = [name for option in self.options for name in option.option_strings]
        near = [name for name in flags if len(flag) > 3 and name.startswith(flag)]
        near = near or difflib.get_close_matches(flag, flags, n=1, cutoff=0.7)
        hint = f"Did you mean {near[0]}?" if near else "tfhvdrun --help lists the options"
        return f"unknown option {flag}. {hint} (options of your command go after the command)"


def _idle_flags() -> str:
    flags = [flag for idle in IDLE for flag in idle.flags]
    words = textwrap.fill(", ".join(flags), 68, break_on_hyphens=False)
    return textwrap.indent(words, "  ")


def switch(*flags: str, dest: str, help: str) -> Row:
    """Returns an option without a value."""
    return {"flags": flags, "dest": dest, "help": help, "action": "store_true"}


def setting(*flags: str, dest: str, to: str, help: str) -> Row:
    """Returns a switch that gives a setting the value `to`."""
    return {"flags": flags, "dest": dest, "help": help, "action": "store_const", "const": to}


def value(
    *flags: str,
    dest: str,
    metavar: str | tuple[str, ...],
    help: str,
    convert: Callable[[Any], object] = str,
    **more: Any,
) -> Row:
    """Returns an option with a value, which `convert` reads."""
    return {
        "flags": flags,
        "dest": dest,
        "metavar": metavar,
        "help": help,
        "action": Value,
        "convert": convert,
        **more,
    }
