"""Native libraries that do not fit, or are not there: one message each that says what to type."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import shlex
import sys
import types

import pytest
import troubleshooting

from tfhvd.compat import installed
from tfhvd.runtime import builds, native

BUILT = native.built_ops()[0].tensorflow


@pytest.mark.parametrize("installed", ["2.99.0", "3.21.0"])
def test_another_tensorflow_is_refused_before_its_ops_are_loaded(monkeypatch, installed):
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(__version__=installed))
    with pytest.raises(ImportError) as raised:
        native.load_tf_ops.__wrapped__()
    text = str(raised.value)
    assert f"Received: TensorFlow {installed}. Expected: TensorFlow {BUILT}. Type: pip inst" in text
    assert "\n" not in text
    troubleshooting.check("built with another TensorFlow", text, block=0)


def test_a_patch_release_of_tensorflow_passes():
    assert native.chosen_ops(f"{builds.minor_of(BUILT)}.99").tensorflow == BUILT


def test_a_wheel_is_mended_by_another_tensorflow(monkeypatch):
    ops = [("2.16.2", False, "a.so"), ("2.21.0", True, "b.so")]
    monkeypatch.setattr(native.build_config(), "OPS", ops)
    monkeypatch.setattr(native.build_config(), "BINARY", True)
    monkeypatch.setattr(installed, "tensorflow_distribution", lambda: ("tensorflow-cpu", "2.22.0"))
    with pytest.raises(ImportError) as raised:
        native.check_installed_tensorflow()
    text = str(raised.value)
    assert "Received: TensorFlow 2.22.0. Expected: TensorFlow 2.16 to 2.21." in text
    assert "Type: pip install 'tensorflow-cpu>=2.16,<2.22'" in text and "uv pip install" in text
    troubleshooting.check("built with another TensorFlow", text, block=1)
    monkeypatch.setattr(installed, "tensorflow_distribution", lambda: ("tensorflow-cpu", "2.16.0"))
    native.check_installed_tensorflow()


def test_a_tensorflow_of_unknown_version_passes(monkeypatch):
    monkeypatch.setattr(installed, "tensorflow_distribution", lambda: None)
    native.check_installed_tensorflow()


@pytest.mark.parametrize("folder", ["tensorflow_cpu-2.19.1", "tf_nightly-2.22.0.dev20260101"])
def test_tensorflow_is_known_without_importing_it(monkeypatch, tmp_path, folder):
    (tmp_path / f"{folder}.dist-info").mkdir()
    (tmp_path / "tensorflow_io_gcs_filesystem-0.37.1.dist-info").mkdir()
    origin = str(tmp_path / "tensorflow" / "__init__.py")
    spec = types.SimpleNamespace(origin=origin)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    name, version = folder.split("-")
    assert installed.tensorflow_distribution() == (name.replace("_", "-"), version)
    (tmp_path / "tensorflow-2.19.1.dist-info").mkdir()  # laid over the other one
    assert installed.tensorflow_distribution() is None


@pytest.mark.parametrize("load", [native.load_native, native.load_tf_ops])
def test_what_is_not_built_is_named(monkeypatch, tmp_path, load):
    monkeypatch.setattr(native, "core_dir", lambda: tmp_path)
    monkeypatch.setattr(native, "load_native", native.load_native.__wrapped__)
    with pytest.raises(
        ImportError, match=r"not built: .*libtfhvd_core.so is missing. Type: pip"
    ) as raised:
        load.__wrapped__()
    troubleshooting.check("`tfhvd is not built`", str(raised.value))


def test_a_python_that_it_is_not_built_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "tfhvd._native", None)
    with pytest.raises(ImportError, match=r"not built for this Python. Type: pip install"):
        native.load_native.__wrapped__()


def test_the_stub_of_the_core_has_its_names():
    """Type checkers read the stub, and would not see that the core has other ones."""
    stub = ast.parse((native.core_dir().parent / "_native.pyi").read_text(encoding="utf-8"))
    core = native.load_native()
    for node in stub.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            there = getattr(core, node.name)
            of_class = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            assert all(hasattr(there, part.name) for part in of_class), node.name
    named = {node.name for node in stub.body if hasattr(node, "name")}
    assert {name for name in vars(core) if not name.startswith("_")} == named


def test_advice_on_mpi_says_which_one_it_was():
    config, advice = native.build_config(), native.mpi_advice()
    assert f"built with {config.MPI_VENDOR} {config.MPI_VERSION}" in advice
    assert "type: pip install --force-reinstall" in advice


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ({"url": "file:///a%20b/tfhvd", "dir_info": {"editable": True}}, "-e '/a b/tfhvd'"),
        ({"url": "file:///src/tfhvd", "dir_info": {}}, "/src/tfhvd"),
        (
            {"url": "https://host/tfhvd.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "git+https://host/tfhvd.git",
        ),
        (None, "--no-binary=tfhvd tfhvd"),
    ],
    ids=["editable", "folder", "repository", "registry"],
)
@pytest.mark.parametrize(
    ("installer", "command"),
    [
        ("pip", "pip install --force-reinstall --no-deps --no-cache-dir"),
        ("uv", "uv pip install --reinstall --no-deps --no-cache"),
    ],
)
def test_to_build_anew_where_it_came_from(monkeypatch, origin, words, installer, command):
    texts = {
        "direct_url.json": None if origin is None else json.dumps(origin),
        "INSTALLER": f"{installer}\n",
    }
    found = types.SimpleNamespace(read_text=texts.get)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: found)
    assert native.rebuild_command() == f"{command} {words}"


def test_from_the_source_tree(monkeypatch):
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    source = native.core_dir().parent.parent
    assert native.rebuild_command().endswith(f" -e {shlex.quote(str(source))}")
