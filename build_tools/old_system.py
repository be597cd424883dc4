"""Links libraries so that older systems can load them than the one that they are built on.

A library asks the system for each function in the version that it was linked with, and a linker
takes the newest. So we link with stubs of the system's libraries, made from its own, which have
no version that is newer than the oldest system to serve: a function that is newer still is an error
of the linker, unless build_tools/old_system.cc has it. Objects are compiled as ever.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

from build_tools.compiler import Link, Unit
from build_tools.find import BuildError
from build_tools.machine import Machine

# What comes with `manylinux_2_28` (PEP 600): Debian 10, Ubuntu 20.04 and RHEL 8 have it, or more.
GLIBC = "2.28"
NEWEST = {"GLIBC": GLIBC, "GLIBCXX": "3.4.24", "CXXABI": "1.3.11"}
LACKS = Path("build_tools/old_system.cc")

_REPLACED = ("libstdc++.so.6", "libm.so.6", "libc.so.6")
# Before glibc 2.34 some functions were in these, which are there since as well, and empty.
_ONCE_APART = ("libpthread.so.0", "libdl.so.2", "librt.so.1")
_SYMBOL = re.compile(
    r"^ *\d+: [0-9a-f]+ +(?P<size>\d+|0x[0-9a-f]+) +(?P<type>FUNC|IFUNC|OBJECT|TLS|NOTYPE) +"
    r"(?:GLOBAL|WEAK|UNIQUE) +DEFAULT +(?:\d+) (?P<name>[^@\s]+)@@?(?P<version>\S+)$",
    re.M,
)
_KINDS = {"OBJECT": "object", "TLS": "tls_object"}


def platform_tag(machine: Machine) -> str:
    """Returns the oldest systems' name in a wheel's, e.g. "manylinux_2_28_x86_64"."""
    return f"manylinux_{GLIBC.replace('.', '_')}_{machine.name}"


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A name that a library offers in a version; `kind` is the assembler's."""

    name: str
    version: str
    kind: str


def read_symbols(table: str) -> list[Symbol]:
    """Returns what a library offers, of the text of `readelf --dyn-syms --wide`."""
    return [
        Symbol(found["name"], found["version"], _KINDS.get(found["type"], "function"))
        for found in _SYMBOL.finditer(table)
    ]


def number_of(version: str) -> tuple[int, ...] | None:
    """Returns "GLIBC_2.28" as (2, 28); None for one that is no number ("GLIBC_PRIVATE")."""
    text = version.partition("_")[2]
    return tuple(map(int, text.split("."))) if re.fullmatch(r"\d+(\.\d+)*", text) else None


def is_old_enough(version: str) -> bool:
    """Whether every system to be served has that version of a symbol."""
    family, number = version.partition("_")[0], number_of(version)
    if number is None or family not in NEWEST:
        return False
    return number <= tuple(map(int, NEWEST[family].split(".")))


def newest_of_old(symbols: list[Symbol]) -> list[Symbol]:
    """Returns each name in the newest version that is old enough, sorted."""
    chosen: dict[str, Symbol] = {}
    for symbol in symbols:
        if not is_old_enough(symbol.version):
            continue
        other = chosen.get(symbol.name)
        if other is None or number_of(other.version) < number_of(symbol.version):
            chosen[symbol.name] = symbol
    return sorted(chosen.values(), key=lambda symbol: symbol.name)


def assembly(symbols: list[Symbol]) -> str:
    """Returns the stub's text for the assembler: every name at one place."""
    lines = []
    for index, symbol in enumerate(symbols):
        thread_local = symbol.kind == "tls_object"
        lines += [
            '.section .tbss,"awT",@nobits' if thread_local else ".text",
            f".globl stub_{index}",
            f".type stub_{index}, @{symbol.kind}",
            f"stub_{index}: .zero 1",
            f".size stub_{index}, 1",
            f".symver stub_{index}, {symbol.name}@@{symbol.version}, remove",
        ]
    # Without it the linker would ask for an executable stack.
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])


def version_script(symbols: list[Symbol]) -> str:
    """Returns the linker's list of the versions that these symbols have."""
    return "".join(f"{version} {{ }};\n" for version in sorted({s.version for s in symbols}))


def link_flags(compiler: str, folder: Path) -> tuple[str, ...]:
    """Makes the stubs in a folder, and returns the flags that link with them instead."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _REPLACED:
        table = subprocess.run(
            ["readelf", "--dyn-syms", "--wide", str(_file_of(compiler, name))],
            capture_output=True,
            text=True,
            check=True,
        )
        _make(compiler, folder / name, newest_of_old(read_symbols(table.stdout)))
    for name in _ONCE_APART:
        _make(compiler, folder / name, [])
    return (
        "-nodefaultlibs",
        "-Wl,--as-needed",
        *(str(folder / name) for name in _REPLACED),
        "-lgcc",
        "-l:libgcc_s.so.1",
        # The loader itself offers what finds thread-local variables.
        *map(str, sorted(_file_of(compiler, "libc.so.6").resolve().parent.glob("ld-linux*.so.*"))),
        "-Wl,--no-as-needed",
        *(str(folder / name) for name in _ONCE_APART),
    )


def lacks(compiler: str, flags: list[str], objects: Path, stamp: str) -> Unit:
    """Returns what to compile, and to link into each library, of what old systems lack."""
    return Unit((LACKS,), objects / "old_system.o", (compiler, *flags, "-O2"), stamp)


def linked(link: Link, flags: tuple[str, ...], unit: Unit) -> Link:
    """Returns a link that older systems can load the result of."""
    return dataclasses.replace(
        link, objects=(*link.objects, unit.object), flags=(*link.flags, *flags)
    )


def _file_of(compiler: str, name: str) -> Path:
    asked = [compiler, f"-print-file-name={name}"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if said == name:
        raise BuildError(f"{compiler} knows no {name}. Expected: GNU's C and C++ libraries.")
    return Path(said)


def _make(compiler: str, library: Path, symbols: list[Symbol]) -> None:
    source, script = library.with_suffix(".s"), library.with_suffix(".versions")
    source.write_text(assembly(symbols), encoding="utf-8")
    script.write_text(version_script(symbols), encoding="utf-8")
    versions = [f"-Wl,--version-script={script}"] if symbols else []
    command = [compiler, "-shared", "-nostdlib", *versions, f"-Wl,-soname,{library.name}"]
    done = subprocess.run(
        [*command, str(source), "-o", str(library)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BuildError(f"The stub of {library.name} cannot be made:\n{done.stderr}")
