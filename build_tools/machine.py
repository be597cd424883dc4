"""The processors that a binary wheel is made for, and what differs between them.

For another one than this machine's a cross-compiler compiles, which Debian and Ubuntu have.
"""

from __future__ import annotations

import dataclasses
import platform
import subprocess
from pathlib import Path

from build_tools import find


@dataclasses.dataclass(frozen=True)
class Machine:
    """A kind of processor.

    Attributes:
        name: What `uname -m` and the names of wheels call it.
        tensorflow: The smallest package of TensorFlow that has wheels for it.
    """

    name: str
    tensorflow: str

    @property
    def triplet(self) -> str:
        """What GNU's tools and Python's extensions call it."""
        return f"{self.name}-linux-gnu"

    @property
    def is_here(self) -> bool:
        """Whether this machine runs what is compiled for it."""
        return self.name == platform.machine()

    @property
    def suffix(self) -> str:
        """How folders' names end that hold what is made for it; own builds share theirs."""
        return "" if self.is_here else f"-{self.name}"


MACHINES = (Machine("x86_64", "tensorflow-cpu"), Machine("aarch64", "tensorflow"))


def named(name: str) -> Machine:
    """Returns one of MACHINES.

    Raises:
        find.BuildError: There is none of that name.
    """
    for machine in MACHINES:
        if machine.name == name:
            return machine
    known = " or ".join(machine.name for machine in MACHINES)
    raise find.BuildError(f"There is no binary wheel for it. Received: {name}. Expected: {known}.")


def find_compiler(machine: Machine) -> str:
    """Returns the C++ compiler for it: $CXX, else one of this machine's or Debian's cross-compiler.

    Raises:
        find.BuildError: There is none, or $CXX compiles for another one.
    """
    if machine.is_here:
        compiler = find.find_compiler()
    else:
        name = f"{machine.triplet}-g++"
        # Debian's packages have no underscore in their names.
        compiler = find.find_compiler((name,), f"g++-{machine.triplet.replace('_', '-')}")
    asked = [compiler, "-dumpmachine"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if said.partition("-")[0] != machine.name:
        raise find.BuildError(
            f"{compiler} compiles for another processor. Received: {said}. "
            f"Expected: {machine.triplet}."
        )
    return compiler


def objects_folder(build: Path, machine: Machine) -> Path:
    """Returns where a build keeps the objects for it."""
    return build / f"objects{machine.suffix}"
