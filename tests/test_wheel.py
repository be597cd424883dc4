"""The binary wheel: libraries for older systems than this one, and for all that it serves.

`.ci/wheels` makes the wheel, installs it and trains with it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from build_tools import find, needs, old_system, products, references, variants
from build_tools.compiler import Link, Unit, compile_all, link_all

ROOT = Path(__file__).resolve().parent.parent

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

    def test_a_library_for_old_systems_works_on_this_one(self, tmp_path):
        import ctypes

        (tmp_path / "a.cc").write_text(self.SOURCE, encoding="utf-8")
        (tmp_path / old_system.LACKS).parent.mkdir()
        (tmp_path / old_system.LACKS).write_bytes((ROOT / old_system.LACKS).read_bytes())
        compiler = find.find_compiler()
        unit = Unit((Path("a.cc"),), tmp_path / "a.o", (compiler, "-fPIC", "-O2"), "1")
        lacks = old_system.lacks(compiler, ["-fPIC", "-Wall", "-Werror"], tmp_path, "1")
        flags = old_system.link_flags(compiler, tmp_path / "old")
        link = Link(tmp_path / "liba.so", (unit.object,), (compiler, "-shared", products.COMPLETE))
        compile_all(tmp_path, [unit, lacks], lambda line: None)
        link_all(tmp_path, [old_system.linked(link, flags, lacks)], lambda line: None)
        table = subprocess.run(
            ["readelf", "--version-info", "--wide", str(link.output)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        needed = set(re.findall(r"Name: ((?:GLIBC|GLIBCXX|CXXABI)_\S+)", table))
        assert "GLIBC_2.2.5" in needed
        assert all(old_system.is_old_enough(version) for version in needed), needed
        library = ctypes.CDLL(str(link.output))
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


class TestVariants:
    def test_this_python_can_be_asked(self):
        python = variants.python_of(sys.executable)
        assert python.tag == f"cp3{sys.version_info[1]}"
        assert (python.headers / "Python.h").is_file()
        assert python.suffix.endswith(".so")

    def test_what_is_no_python_is_named(self):
        with pytest.raises(find.BuildError, match="/bin/false"):
            variants.python_of("/bin/false")

    def test_all_tensorflows_are_supported_by_a_build_from_source(self, tmp_path, monkeypatch):
        for minor in references.TENSORFLOWS:
            folder = tmp_path / f"tensorflow-{minor}"
            info = folder / f"tensorflow_cpu-{minor}.3.dist-info"
            (folder / "tensorflow").mkdir(parents=True)
            (folder / "tensorflow" / "__init__.py").touch()
            info.mkdir()
            (info / "RECORD").write_text("tensorflow/__init__.py,sha256=x,0\n", encoding="utf-8")
            assert references.tensorflow(minor, tmp_path).version == f"{minor}.3"
