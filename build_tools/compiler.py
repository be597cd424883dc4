"""Compiles and links: in parallel, and only what changed since the last time.

A file is compiled again when its command line, it or a header of ours that it includes changed;
for the headers of other packages stands the `stamp` that comes with the command (their version).
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Callable

from build_tools.find import BuildError


@dataclasses.dataclass(frozen=True)
class Unit:
    """What one run of the compiler compiles.

    Attributes:
        sources: Relative to the root of the tree. Several are compiled as one, which reads the
            headers that they share once.
        object: Where the result goes.
        command: The compiler with its flags, without source and output.
        stamp: Versions of what the command uses by path.
        cost: Rough seconds; the slowest files are begun first.
    """

    sources: tuple[Path, ...]
    object: Path
    command: tuple[str, ...]
    stamp: str
    cost: int = 1

    def __str__(self) -> str:
        first, *others = self.sources
        return f"{first.parent}: {len(self.sources)} files" if others else str(first)


@dataclasses.dataclass(frozen=True)
class Link:
    """One library or program to link from objects and flags (in this order)."""

    output: Path
    objects: tuple[Path, ...]
    command: tuple[str, ...]
    flags: tuple[str, ...] = ()


def job_count() -> int:
    """Returns how many compilers run at once: $MAX_JOBS, else one for each core."""
    named = os.environ.get("MAX_JOBS")
    if named is None:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if not named.isdigit() or int(named) < 1:
        raise BuildError(
            f"MAX_JOBS is not a number of jobs. Received: {named!r}. Expected: 1 or more."
        )
    return int(named)


def compile_all(root: Path, units: list[Unit], say: Callable[[str], None] = print) -> None:
    """Compiles what is not up to date, the slowest first; stops at the first failure.

    Raises:
        BuildError: A file does not compile; the text is the compiler's.
    """
    stale = [unit for unit in units if not _is_current(root, unit)]
    stale.sort(key=lambda unit: -unit.cost)
    say(f"{len(units)} units, {len(stale)} to compile, {job_count()} at a time")
    with concurrent.futures.ThreadPoolExecutor(job_count()) as pool:
        running = {pool.submit(_compile, root, unit): unit for unit in stale}
        for number, future in enumerate(concurrent.futures.as_completed(running), 1):
            seconds, failure = future.result()
            unit = running[future]
            if failure is not None:
                for other in running:
                    other.cancel()
                raise BuildError(f"{unit} does not compile:\n{failure}")
            say(f"[{number}/{len(stale)}] {unit} ({seconds:.1f} s)")


def link_all(root: Path, links: list[Link], say: Callable[[str], None] = print) -> None:
    """Links in the given order what is older than its parts.

    Raises:
        BuildError: The linker fails; the text is the linker's.
    """
    for link in links:
        command = [*link.command, *map(str, link.objects), *link.flags, "-o", str(link.output)]
        # Not beside the output, which is installed; one for each place that it is linked to.
        place = hashlib.sha256(str(link.output).encode()).hexdigest()[:12]
        note = link.objects[0].with_suffix(f".{place}.link")
        newest = max(part.stat().st_mtime for part in link.objects)
        if _reads(note) == _note(command, "") and _mtime(link.output) >= newest:
            continue
        link.output.parent.mkdir(parents=True, exist_ok=True)
        # A new file: a process that has the old one mapped keeps it.
        link.output.unlink(missing_ok=True)
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(
                f"{link.output.name} does not link:\n{shlex.join(command)}\n{done.stderr}"
            )
        note.write_text(_note(command, ""), encoding="utf-8")
        say(f"linked {link.output}")


def _compile(root: Path, unit: Unit) -> tuple[float, str | None]:
    unit.object.parent.mkdir(parents=True, exist_ok=True)
    note = unit.object.with_suffix(".cmd")
    note.unlink(missing_ok=True)
    source = _source(unit)
    begun, now = time.monotonic(), time.time()
    command = [*unit.command, "-MMD", "-c", "-o", str(unit.object), str(source)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return 0.0, f"{shlex.join(command)}\n{done.stderr}"
    # As old as the compiler's start: what was edited meanwhile is newer.
    os.utime(unit.object, (now, now))
    note.write_text(_unit_note(unit), encoding="utf-8")
    return time.monotonic() - begun, None


def _source(unit: Unit) -> Path:
    """Returns the one source, or a file beside the object that includes all of them."""
    if len(unit.sources) == 1:
        return unit.sources[0]
    together = unit.object.with_suffix(".cc")
    text = "".join(f'#include "{source}"\n' for source in unit.sources)
    together.write_text(text, encoding="utf-8")
    return together


def _is_current(root: Path, unit: Unit) -> bool:
    if _reads(unit.object.with_suffix(".cmd")) != _unit_note(unit):
        return False
    listed = _reads(unit.object.with_suffix(".d"))
    if listed is None:
        return False
    headers = shlex.split(listed.replace("\\\n", " ").partition(":")[2])
    made = _mtime(unit.object)
    return all(0 <= _mtime(root / header) <= made for header in headers)


def _unit_note(unit: Unit) -> str:
    return _note([*unit.command, *map(str, unit.sources)], unit.stamp)


def _note(command: tuple[str, ...] | list[str], stamp: str) -> str:
    return f"{shlex.join(command)}\n{stamp}\n"


def _reads(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _mtime(path: Path) -> float:
    return path.stat().st_mtime if path.is_file() else -1.0
