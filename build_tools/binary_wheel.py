"""The command `setup.py binary_wheel`: one wheel for several TensorFlows, MPIs and Pythons.

    python setup.py binary_wheel --cache ~/.cache/tfhvd --pythons python3.11,python3.12
    python setup.py binary_wheel --machine aarch64

Needs setuptools 70.1 or newer. See docs/developers/wheel.md.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import ClassVar

from setuptools.command.bdist_wheel import bdist_wheel

from build_tools import find, machine, old_system, references, variants

_LAST = references.TENSORFLOWS[-1].split(".")
RANGE = f">={references.TENSORFLOWS[0]},<{_LAST[0]}.{int(_LAST[1]) + 1}"


class BinaryWheel(bdist_wheel):
    """Builds the libraries of `variants` instead of those for this machine."""

    description = "build a wheel that needs no compiler, for several TensorFlows, MPIs and Pythons"
    user_options: ClassVar = [
        *bdist_wheel.user_options,
        (
            "cache=",
            None,
            "where what is compiled against is kept (default: build/references)",
        ),
        ("machine=", None, "the processor to serve: x86_64 or aarch64 (default: this one)"),
        ("tensorflows=", None, "the minor versions to serve, for a trial (default: all)"),
        ("pythons=", None, "the Pythons to serve, with commas between (default: this one)"),
    ]

    def initialize_options(self) -> None:
        super().initialize_options()
        self.cache = "build/references"
        self.machine = platform.machine()
        self.tensorflows = ",".join(references.TENSORFLOWS)
        self.pythons = sys.executable

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False
        try:
            self.distribution.parts = variants.fetch(
                machine.named(self.machine),
                Path(self.cache).resolve(),
                self.tensorflows.split(","),
                self.pythons.split(","),
            )
        except find.BuildError as error:
            sys.exit(f"tfhvd: {error}")

    def get_tag(self) -> tuple[str, str, str]:
        """Returns the Pythons, no binary interface of theirs for all, and the oldest glibc."""
        parts = self.distribution.parts
        pythons = ".".join(python.tag for python in parts.pythons)
        return pythons, "none", old_system.platform_tag(parts.machine)
