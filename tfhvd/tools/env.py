"""``tfhvd env``: what a report of a bug needs, of this machine and this environment."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
from pathlib import Path
from typing import Any

from tfhvd.errors import TfhvdError
from tfhvd.installation import build_info
from tfhvd.launch.errors import UsageError
from tfhvd.launch.placement import mpi
from tfhvd.protocol import variables
from tfhvd.runtime.native import load_native
from tfhvd.tools import env_variables, facts

_GIB = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints it; the exit code is 0."""
    environ = variables.own()
    found = facts.gather(environ)
    shown = env_variables.of_a_job(environ, environ.get("HOME", ""))
    if options.json:
        print(json.dumps(_as_json(found, shown), indent=1))
    else:
        print("\n".join([*_build(), *_packages(found), *_machine(found), *_variables(shown)]))
    return 0


def _as_json(found: facts.Facts, shown: dict[str, str]) -> dict[str, Any]:
    fields = found.to_json()
    # Names and places are private.
    for name in ("host", "machine_id", "interfaces"):
        del fields[name]
    for gpu in fields["gpus"]:
        del gpu["uuid"]
    about = {"system": _system(), "processor": _processor(), "mpirun": _mpirun()}
    return {**fields, **about, "variables": shown}


def _build() -> list[str]:
    try:
        return [str(build_info())]
    except (ImportError, TfhvdError) as error:
        return [f"tfhvd cannot be loaded: {error}"]


def _packages(found: facts.Facts) -> list[str]:
    rows = {name: version or "not installed" for name, version in found.versions.items()}
    rows.update({"mpirun": _mpirun(), "core": found.build.rpartition("core ")[2]})
    return ["versions", *_table(rows), *(f"  problem: {text}" for text in found.problems)]


def _machine(found: facts.Facts) -> list[str]:
    cores, memory, limits = found.cores, found.memory, found.limits
    quota = "no limit" if cores.quota is None else f"limit of the container {cores.quota:g}"
    limit = "no limit" if memory.limit is None else f"limit of the container {_gib(memory.limit)}"
    rows = {
        "system": _system(),
        "processor": _processor(),
        "cores": f"{len(cores.allowed)} of {cores.online}, {quota}",
        "memory": f"{_gib(memory.total)}, {_gib(memory.available)} free, {limit}",
        "/dev/shm": f"{_gib(memory.shm_size)}, {_gib(memory.shm_free)} free",
        "limits": ", ".join(
            f"{name} {'unlimited' if value is None else value}"
            for name, value in dataclasses.asdict(limits).items()
        ),
        "network": ", ".join(dict.fromkeys(f"{i.name} (MTU {i.mtu})" for i in found.interfaces)),
        "InfiniBand": ", ".join(found.infiniband) or "none",
        "GPUs": ", ".join(f"{gpu.name}, driver {gpu.driver}" for gpu in found.gpus) or "none",
    }
    return ["machine", *_table(rows)]


def _variables(shown: dict[str, str]) -> list[str]:
    lines = [f"  {name}={value}" for name, value in shown.items()]
    found = [f"  {line}" for line in env_variables.settings_in_effect(_settings(), shown)]
    return [
        *("settings in effect", *(found or ["  all have their defaults"])),
        *("variables", *(lines or ["  none"])),
    ]


def _settings() -> list[tuple[str, str | None, str]]:
    try:
        rows = load_native().settings()
    except ImportError:
        return []
    return [(f"TFHVD_{row.name}", row.horovod_name, row.default_text) for row in rows]


def _table(rows: dict[str, str]) -> list[str]:
    width = max(map(len, rows))
    return [f"  {name:<{width}}  {text}" for name, text in rows.items()]


def _mpirun() -> str:
    try:
        found = mpi.identify(mpi.find_mpirun())
    except UsageError as error:
        return f"none: {error}"
    return f"{found.vendor} {found.major}"


def _system() -> str:
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition("=")[2].strip('"') for line in lines if line.startswith("PRETTY_NAME=")]
    return f"{named[0] if named else 'Linux'}, {platform.machine()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"


def _gib(amount: int) -> str:
    return f"{amount / _GIB:.1f} GiB"
