"""Which library of operations serves a TensorFlow, and what to type where none does."""

from __future__ import annotations

import pytest

from tfhvd.runtime import builds

WHEEL = tuple(
    builds.Ops(f"2.{minor}.1", minor >= 19, f"tensorflow-2.{minor}/libtfhvd_tf.so")
    for minor in range(16, 22)
)
SOURCE = (builds.Ops("2.22.0rc1", True, "libtfhvd_tf.so"),)


@pytest.mark.parametrize(
    ("version", "file"),
    [
        ("2.16.0", "tensorflow-2.16/libtfhvd_tf.so"),
        ("2.19.1", "tensorflow-2.19/libtfhvd_tf.so"),
        ("2.21.0rc0", "tensorflow-2.21/libtfhvd_tf.so"),
    ],
)
def test_a_wheel_has_a_library_for_each_minor_version(version, file):
    assert builds.ops_for(version, WHEEL).file == file


@pytest.mark.parametrize("version", ["2.15.1", "2.1.6", "2.22.0", "3.16.0"])
def test_others_are_not_served(version):
    assert builds.ops_for(version, WHEEL) is None


def test_a_build_from_source_serves_its_own():
    assert builds.ops_for("2.22.3", SOURCE) is SOURCE[0]
    assert builds.ops_for("2.21.0", SOURCE) is None


def test_what_is_served_is_said():
    assert builds.served_versions(WHEEL) == "2.16 to 2.21"
    assert builds.served_versions(SOURCE) == "2.22.0rc1"


def test_a_tensorflow_is_replaced_under_its_own_name():
    command = builds.replacement("tensorflow-cpu", WHEEL)
    assert command.startswith("pip install 'tensorflow-cpu>=2.16,<2.22' ")
    assert "uv pip install" in command
