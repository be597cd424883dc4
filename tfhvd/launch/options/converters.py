"""Text of an option -> its value. Each function raises ValueError with the expectation. Pure."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from tfhvd.network import ports

LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")


def whole(least: int) -> Callable[[str], int]:
    """Returns a converter for whole numbers: ``whole(1)("3") == 3``."""

    def convert(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or int(text) < least:
            raise ValueError(f"a whole number, at least {least}")
        return int(text)

    return convert


def one_of(*names: str) -> Callable[[str], str]:
    """Returns a converter for one of these words: ``one_of("a", "b")("a") == "a"``."""

    def convert(text: str) -> str:
        if text not in names:
            raise ValueError(" or ".join(names))
        return text

    return convert


def count(text: str) -> str:
    """Reads a whole number from 0 on, for a setting."""
    return str(whole(0)(text))


def number(text: str) -> float:
    """Reads a number that is not negative: ``number("2.5") == 2.5``."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text):
        raise ValueError("a number, at least 0")
    return float(text)


def plain_number(text: str) -> str:
    """Reads a number for a setting: ``plain_number("2.50") == "2.5"``."""
    return f"{number(text):.10g}"


def megabytes(text: str) -> str:
    """Converts MiB to bytes, for a setting: ``megabytes("0.5") == "524288"``."""
    return str(int(number(text) * 2**20))


def level(text: str) -> str:
    """Reads one of LEVELS, in upper or lower case."""
    if text.lower() not in LEVELS:
        raise ValueError(f"one of {', '.join(LEVELS)}")
    return text.lower()


def variable(text: str) -> tuple[str, str | None]:
    """Reads a variable: ``variable("A=b") == ("A", "b")``, ``variable("A") == ("A", None)``."""
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("NAME or NAME=VALUE")
    return name, value if equals else None


def interfaces(text: str) -> tuple[str, ...]:
    """Reads network interfaces: ``interfaces("eth0,eth1") == ("eth0", "eth1")``."""
    names = tuple(text.split(","))
    if not all(re.fullmatch(r"[^\s/,]+", name) for name in names):
        raise ValueError("names of network interfaces, as in eth0,eth1")
    return names


def output(text: str) -> int | Path | None:
    """Reads the rank whose output is shown: ``output("rank0") == 0``; None for all; or a folder."""
    if text in ("", "all"):
        return None
    match = re.fullmatch(r"rank([0-9]{1,6})", text)
    return int(match[1]) if match else Path(text)


def port(text: str) -> int:
    """Reads a port number, 1 to 65535."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise ValueError("a port number, 1 to 65535")
    return int(text)


def port_range(text: str) -> str:
    """Checks a range for a setting: ``port_range("20000-20100") == "20000-20100"``."""
    if not text:
        raise ValueError("two port numbers, as in 20000-20100")
    ports.read(text)
    return text


def port_text(text: str) -> str:
    """Reads a port number for a setting."""
    return str(port(text))


def key_file(text: str) -> Path:
    """Reads the path of a key for ssh, which would silently ignore a wrong path."""
    path = Path(text).expanduser()
    if not path.is_file():
        raise ValueError("a file with a private key")
    return path.absolute()


def program(text: str) -> Path:
    """Finds a program that can be run, on PATH or by its path."""
    name = str(Path(text).expanduser().absolute()) if "/" in text else text
    path = shutil.which(name)
    if path is None:
        raise ValueError("a program that can be run")
    return Path(path).absolute()


def words(text: str) -> tuple[str, ...]:
    """Splits arguments: ``words("--mca x 'y z'") == ("--mca", "x", "y z")``."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError("arguments for mpirun, quoted as for a shell") from error


def script(text: str) -> tuple[str, ...]:
    """Reads a program that can be run, and its arguments: ``script("./hosts.sh --all")``."""
    try:
        name, *arguments = shlex.split(text)
        return (str(program(name)), *arguments)
    except ValueError as error:
        raise ValueError("a script that can be run (chmod +x), and its arguments") from error


def pauses(texts: list[str]) -> tuple[float, float]:
    """Reads two numbers of seconds: ``pauses(["1", "600"]) == (1.0, 600.0)``."""
    try:
        first, longest = map(number, texts)
    except ValueError as error:
        raise ValueError("two numbers of seconds") from error
    if not 0 < first <= longest:
        raise ValueError("two numbers of seconds, the smaller one first")
    return first, longest
