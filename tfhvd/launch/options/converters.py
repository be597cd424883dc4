"""Text of an option -> its value. Each function raises ValueError with what was expected. Pure."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from tfhvd.network import ports

LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")


def whole(least: int) -> Callable[[str], int]:
    """A converter for whole numbers: ``whole(1)("3") == 3``."""

    def convert(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or int(text) < least:
            raise ValueError(f"a whole number, at least {least}")
        return int(text)

    return convert


def one_of(*names: str) -> Callable[[str], str]:
    """A converter for one of these words: ``one_of("warn", "abort")("warn") == "warn"``."""

    def convert(text: str) -> str:
        if text not in names:
            raise ValueError(" or ".join(names))
        return text

    return convert


def count(text: str) -> str:
    """A whole number from 0 on, for a setting."""
    return str(whole(0)(text))


def number(text: str) -> float:
    """``number("2.5") == 2.5``; not negative."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text):
        raise ValueError("a number, at least 0")
    return float(text)


def plain_number(text: str) -> str:
    """A number for a setting: ``plain_number("2.50") == "2.5"``."""
    return f"{number(text):.10g}"


def megabytes(text: str) -> str:
    """MiB -> bytes, for a setting: ``megabytes("0.5") == "524288"``."""
    return str(int(number(text) * 2**20))


def level(text: str) -> str:
    """One of LEVELS, in any case."""
    if text.lower() not in LEVELS:
        raise ValueError(f"one of {', '.join(LEVELS)}")
    return text.lower()


def variable(text: str) -> tuple[str, str | None]:
    """``variable("A=b") == ("A", "b")``, ``variable("A") == ("A", None)``."""
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("NAME or NAME=VALUE")
    return name, value if equals else None


def interfaces(text: str) -> tuple[str, ...]:
    """``interfaces("eth0,eth1") == ("eth0", "eth1")``."""
    names = tuple(text.split(","))
    if not all(re.fullmatch(r"[^\s/,]+", name) for name in names):
        raise ValueError("names of network interfaces, as in eth0,eth1")
    return names


def output(text: str) -> int | Path | None:
    """Whose output is shown: ``output("rank0") == 0``, all: None; or else a folder for it."""
    if text in ("", "all"):
        return None
    match = re.fullmatch(r"rank([0-9]{1,6})", text)
    return int(match[1]) if match else Path(text)


def port(text: str) -> int:
    """1 to 65535."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise ValueError("a port number, 1 to 65535")
    return int(text)


def port_range(text: str) -> str:
    """For a setting: ``port_range("20000-20100") == "20000-20100"``."""
    if not text:
        raise ValueError("two port numbers, as in 20000-20100")
    ports.read(text)
    return text


def port_text(text: str) -> str:
    """The same, for a setting."""
    return str(port(text))


def key_file(text: str) -> Path:
    """A file for ssh, which would take a wrong one without a word, and ask for a password."""
    path = Path(text).expanduser()
    if not path.is_file():
        raise ValueError("a file with a private key")
    return path.absolute()


def program(text: str) -> Path:
    """A program that can be run, on PATH or by its path."""
    name = str(Path(text).expanduser().absolute()) if "/" in text else text
    path = shutil.which(name)
    if path is None:
        raise ValueError("a program that can be run")
    return Path(path).absolute()


def words(text: str) -> tuple[str, ...]:
    """``words("--mca x 'y z'") == ("--mca", "x", "y z")``."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError("arguments for mpirun, quoted as for a shell") from error


def script(text: str) -> tuple[str, ...]:
    """A program that can be run, and its arguments: ``script("./hosts.sh --all")``."""
    try:
        name, *arguments = shlex.split(text)
        return (str(program(name)), *arguments)
    except ValueError as error:
        raise ValueError("a script that can be run (chmod +x), and its arguments") from error


def pauses(texts: list[str]) -> tuple[float, float]:
    """``pauses(["1", "600"]) == (1.0, 600.0)``."""
    try:
        first, longest = map(number, texts)
    except ValueError as error:
        raise ValueError("two numbers of seconds") from error
    if not 0 < first <= longest:
        raise ValueError("two numbers of seconds, the smaller one first")
    return first, longest
