"""The binary wheel: libraries for older systems than this one, and for all that it serves.

`.ci/wheels` makes the wheel, installs it and trains with it.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from build_tools import core_tests, find, needs, old_system, products, pythons, references
from build_tools import machine as machines
from build_tools.compiler import Link, Unit, compile_all, link_all
from build_tools.machine import MACHINES, Machine

ROOT = Path(__file__).resolve().parent.parent
HERE = machines.named(platform.machine())
OTHERS = [machine for machine in MACHINES if not machine.is_here]

# As `readelf --dyn-syms --wide` prints them.
TABLE = """
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND _dl_x@GLIBC_PRIVATE (34)
     2: 0000000000086d10    11 FUNC    GLOBAL DEFAULT   16 dlopen@@GLIBC_2.34
     3: 0000000000086d10    11 FUNC    GLOBAL DEFAULT   16 dlopen@GLIBC_2.2.5
     4: 00000000000f9a40    15 FUNC    WEAK   DEFAULT   16 stat@@GLIBC_2.33
     5: 00000000001d3ac0     8 OBJECT  GLOBAL DEFAULT   33 stdout@@GLIBC_2.2.5
     6: 0000000000000000     0 OBJECT  GLOBAL DEFAULT  ABS GLIBC_2.2.5
     7: 00000000000a2b10   114 IFUNC   GLOBAL DEFAULT   16 memcpy@@GLIBC_2.14
     9: 0000000000000018     8 TLS     GLOBAL DEFAULT   20 _ZSt11__once_call@@GLIBCXX_3.4.11
     8: 00000000000a2a00   114 IFUNC   GLOBAL DEFAULT   16 memcpy@GLIBC_2.2.5
"""


# The same of aarch64, whose first version is 2.17. It has no older `dlopen` than that.
TABLE_OF_ARM = """
   174: 00000000000e8980    88 FUNC    GLOBAL DEFAULT   12 __xstat@@GLIBC_2.17
   636: 00000000000d92e0    20 FUNC    WEAK   DEFAULT   12 stat@@GLIBC_2.33
  2152: 000000000007ae00   192 FUNC    GLOBAL DEFAULT   12 dlopen@@GLIBC_2.34
  2154: 000000000007ae00   192 FUNC    GLOBAL DEFAULT   12 dlopen@GLIBC_2.17
  2651: 0000000000092c90   332 IFUNC   GLOBAL DEFAULT   12 memcpy@@GLIBC_2.17
"""


def versions_needed(library: Path) -> set[str]:
    """Returns the versions of the C and C++ libraries' symbols that a library asks for."""
    command = ["readelf", "--version-info", "--wide", str(library)]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"Name: ((?:GLIBC|GLIBCXX|CXXABI)_\S+)", table))


class TestOldSystem:
    """What is linked with names no function of a newer system."""

    def test_symbols_are_taken_in_the_newest_version_that_is_old_enough(self):
        chosen = old_system.newest_of_old(old_system.read_symbols(TABLE))
        assert [(s.name, s.version, s.kind) for s in chosen] == [
            ("_ZSt11__once_call", "GLIBCXX_3.4.11", "tls_object"),
            ("dlopen", "GLIBC_2.2.5", "function"),
            ("memcpy", "GLIBC_2.14", "function"),
            ("stdout", "GLIBC_2.2.5", "object"),
        ]

    def test_symbols_of_another_machine_have_its_versions(self):
        chosen = old_system.newest_of_old(old_system.read_symbols(TABLE_OF_ARM))
        assert [(s.name, s.version) for s in chosen] == [
            ("__xstat", "GLIBC_2.17"),
            ("dlopen", "GLIBC_2.17"),
            ("memcpy", "GLIBC_2.17"),
        ]

    @pytest.mark.parametrize(
        ("version", "old"),
        [
            ("GLIBC_2.28", True),
            ("GLIBC_2.4", True),
            ("GLIBC_2.29", False),
            ("GLIBC_PRIVATE", False),
            ("GLIBCXX_3.4.24", True),
            ("GLIBCXX_3.4.26", False),
            ("CXXABI_1.3.13", False),
            ("CXXABI_TM_1", False),
        ],
    )
    def test_versions_are_compared_as_numbers(self, version, old):
        assert old_system.is_old_enough(version) is old

    SOURCE = """
        #include <sys/stat.h>
        #include <sstream>
        #include <exception>
        #include <vector>
        #include <stdexcept>
        #include <memory>
        #include <mutex>
        extern "C" long size_of(const char* path) {
          struct stat found;
          return stat(path, &found) == 0 ? found.st_size : -1;
        }
        extern "C" int passes(int n) {
          std::stringstream text;
          text << n;
          std::exception_ptr kept;
          std::once_flag once;
          std::call_once(once, [&] { text << n; });
          try {
            throw std::runtime_error(text.str());
          } catch (...) {
            kept = std::current_exception();
          }
          for (int i = 0; i < 1000; ++i) std::exception_ptr(kept).swap(kept);
          try {
            std::rethrow_exception(kept);
          } catch (const std::exception& error) {
            return std::stoi(error.what());
          }
        }
    """

    def library_for(self, machine: Machine, folder: Path) -> Path:
        """Builds SOURCE for old systems."""
        (folder / "a.cc").write_text(self.SOURCE, encoding="utf-8")
        (folder / old_system.LACKS).parent.mkdir()
        (folder / old_system.LACKS).write_bytes((ROOT / old_system.LACKS).read_bytes())
        compiler = machines.find_compiler(machine)
        unit = Unit((Path("a.cc"),), folder / "a.o", (compiler, "-fPIC", "-O2"), "1")
        lacks = old_system.lacks(compiler, ["-fPIC", "-Wall", "-Werror"], folder, "1")
        flags = old_system.link_flags(compiler, folder / "old")
        link = Link(folder / "liba.so", (unit.object,), (compiler, "-shared", products.COMPLETE))
        compile_all(folder, [unit, lacks], lambda line: None)
        link_all(folder, [old_system.linked(link, flags, lacks)], lambda line: None)
        return link.output

    @pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
    def test_a_library_asks_for_nothing_newer(self, machine, tmp_path):
        if not machine.is_here and shutil.which(f"{machine.triplet}-g++") is None:
            pytest.skip(f"no cross-compiler for {machine.name} is installed")
        needed = versions_needed(self.library_for(machine, tmp_path))
        first = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}
        assert first[machine.name] in needed
        assert all(old_system.is_old_enough(version) for version in needed), needed

    def test_a_library_for_old_systems_works_on_this_one(self, tmp_path):
        import ctypes

        library = ctypes.CDLL(str(self.library_for(HERE, tmp_path)))
        library.size_of.restype = ctypes.c_long
        assert library.size_of(str(tmp_path / "a.cc").encode()) == len(self.SOURCE)
        assert library.size_of(b"/nowhere") == -1
        assert library.passes(42) == 4242

    def test_a_function_that_is_too_new_is_an_error(self, tmp_path):
        (tmp_path / "a.cc").write_text(
            '#include <sys/random.h>\nextern "C" unsigned arc4random(void);\n'
            'extern "C" unsigned f() { return arc4random(); }\n',
            encoding="utf-8",
        )
        compiler = find.find_compiler()
        unit = Unit((Path("a.cc"),), tmp_path / "a.o", (compiler, "-fPIC"), "1")
        flags = old_system.link_flags(compiler, tmp_path / "old")
        link = Link(
            tmp_path / "liba.so",
            (unit.object,),
            (compiler, "-shared", products.COMPLETE),
            flags,
        )
        compile_all(tmp_path, [unit], lambda line: None)
        with pytest.raises(find.BuildError, match="arc4random"):
            link_all(tmp_path, [link], lambda line: None)


class TestNeeds:
    @pytest.mark.parametrize(
        ("library", "need", "allowed"),
        [
            ("tfhvd/_lib/libtfhvd_core.so", "libc.so.6", True),
            ("tfhvd/_lib/libtfhvd_core.so", "libmpi.so.40", False),
            ("tfhvd/_lib/open-mpi/libtfhvd_mpi.so", "libmpi.so.40", False),
            ("tfhvd/_lib/open-mpi/libtfhvd_mpi.so", "libstdc++.so.6", True),
            ("tfhvd/_lib/tensorflow-2.16/libtfhvd_tf.so", "libtensorflow_framework.so.2", True),
            ("tfhvd/_lib/tensorflow-2.16/libtfhvd_tf.so", "libtfhvd_core.so", True),
            ("tfhvd/_native.cpython-311-x86_64-linux-gnu.so", "libtfhvd_core.so", True),
            ("tfhvd/_native.cpython-311-x86_64-linux-gnu.so", "libpython3.11.so.1.0", False),
        ],
    )
    def test_a_library_may_need_little(self, library, need, allowed):
        assert needs.wrong_needs(library, [need]) == ([] if allowed else [need])


class TestMachine:
    """What is for which processor, by its name alone."""

    @pytest.mark.parametrize("name", ["x86_64", "aarch64"])
    def test_a_wheel_is_named_after_it(self, name):
        assert old_system.platform_tag(machines.named(name)) == f"manylinux_2_28_{name}"

    def test_an_unknown_one_is_refused(self):
        with pytest.raises(find.BuildError, match=r"Received: s390x\. Expected: x86_64 or aarch64"):
            machines.named("s390x")

    @pytest.mark.parametrize("machine", OTHERS, ids=lambda machine: machine.name)
    def test_a_compiler_for_this_one_is_refused_for_another(self, machine, monkeypatch):
        monkeypatch.setenv("CXX", find.find_compiler())
        with pytest.raises(find.BuildError, match=f"another processor.*{machine.triplet}"):
            machines.find_compiler(machine)

    @pytest.mark.parametrize("machine", OTHERS, ids=lambda machine: machine.name)
    def test_a_missing_cross_compiler_is_named_with_its_package(self, machine, monkeypatch):
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", "/nowhere")
        package = f"g++-{machine.name.replace('_', '-')}-linux-gnu"
        with pytest.raises(find.BuildError, match=re.escape(f"apt-get install {package}")):
            machines.find_compiler(machine)

    @pytest.mark.parametrize("machine", OTHERS, ids=lambda machine: machine.name)
    def test_what_is_built_for_another_lies_apart(self, machine):
        build = Path("build")
        assert machines.objects_folder(build, HERE) == build / "objects"
        assert machines.objects_folder(build, machine) == build / f"objects-{machine.name}"
        folder = core_tests.core_tests_folder
        assert folder(build, "", HERE) == build / "core_tests"
        assert folder(build, "thread", HERE) == build / "core_tests-thread"
        assert folder(build, "", machine) == build / f"core_tests-{machine.name}"


class TestPythons:
    def test_this_python_can_be_asked(self):
        python = pythons.python_of(sys.executable)
        assert python.tag == f"cp3{sys.version_info[1]}"
        assert (python.headers[0] / "Python.h").is_file()
        assert python.suffix.endswith(".so")

    def test_what_is_no_python_is_named(self):
        with pytest.raises(find.BuildError, match="/bin/false"):
            pythons.python_of("/bin/false")

    def python_in(self, include: Path) -> pythons.Python:
        headers = include / "python3.11"
        headers.mkdir(parents=True)
        suffix = f".cpython-311-{HERE.triplet}.so"
        return pythons.Python((headers,), suffix, "cp311", HERE.triplet)

    def test_nothing_is_changed_for_this_machine(self, tmp_path):
        python = self.python_in(tmp_path / "include")
        assert pythons.for_machine(python, HERE, tmp_path) == python

    @pytest.mark.parametrize("machine", OTHERS, ids=lambda machine: machine.name)
    def test_an_extension_is_named_after_the_machine(self, machine, tmp_path):
        python = self.python_in(tmp_path / "include")
        made = pythons.for_machine(python, machine, tmp_path / "made")
        assert made.suffix == f".cpython-311-{machine.name}-linux-gnu.so"
        assert (made.tag, made.headers[-1]) == (python.tag, python.headers[0])

    @pytest.mark.parametrize("machine", OTHERS, ids=lambda machine: machine.name)
    def test_debians_header_of_the_machine_is_found_under_its_name(self, machine, tmp_path):
        python = self.python_in(tmp_path / "include")
        own = tmp_path / "include" / HERE.triplet / "python3.11" / "pyconfig.h"
        own.parent.mkdir(parents=True)
        own.write_text("#define SIZEOF_LONG 8\n", encoding="utf-8")
        made = pythons.for_machine(python, machine, tmp_path / "made")
        found = made.headers[0] / machine.triplet / "python3.11" / "pyconfig.h"
        assert found.read_text(encoding="utf-8") == own.read_text(encoding="utf-8")


class TestReferences:
    @pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
    def test_only_wheels_for_the_machine_are_asked_for(self, machine):
        command = references.download_command("mpich>=5,<6", machine, Path("folder"))
        asked = [word for word in command if word.startswith("--platform=")]
        assert f"--platform=manylinux_2_28_{machine.name}" in asked
        assert all(word.endswith(f"_{machine.name}") for word in asked)
        assert command[-1] == "mpich>=5,<6"

    def test_the_package_is_one_that_has_wheels_for_the_machine(self, tmp_path, monkeypatch):
        asked = []

        def note(requirement: str, machine: Machine, folder: Path) -> Path:
            asked.append((requirement, folder.relative_to(tmp_path).as_posix()))
            raise find.BuildError

        monkeypatch.setattr(references, "_fetched", note)
        for machine in MACHINES:
            with pytest.raises(find.BuildError):
                references.tensorflow("2.20", machine, tmp_path)
        assert asked == [
            ("tensorflow-cpu==2.20.*", "x86_64/tensorflow-2.20"),
            ("tensorflow==2.20.*", "aarch64/tensorflow-2.20"),
        ]

    @pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
    def test_all_tensorflows_are_supported_by_a_build_from_source(self, machine, tmp_path):
        for minor in references.TENSORFLOWS:
            folder = tmp_path / machine.name / f"tensorflow-{minor}"
            distribution = machine.tensorflow.replace("-", "_")
            info = folder / f"{distribution}-{minor}.3.dist-info"
            (folder / "tensorflow").mkdir(parents=True)
            (folder / "tensorflow" / "__init__.py").touch()
            info.mkdir()
            (info / "RECORD").write_text("tensorflow/__init__.py,sha256=x,0\n", encoding="utf-8")
            assert references.tensorflow(minor, machine, tmp_path).version == f"{minor}.3"
