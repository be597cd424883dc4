"""Sizes, and the gradients of models."""

from __future__ import annotations

import re

import pytest

from tfhvd.bench import workloads


@pytest.mark.parametrize(
    ("name", "tensors", "elements"),
    [("resnet50", 161, 25_557_032), ("bert", 199, 109_482_240), ("tiny", 8, 2_510_116)],
)
def test_models(name, tensors, elements):
    found = workloads.model(name)
    assert (len(found.shapes), found.elements, found.bytes) == (tensors, elements, 4 * elements)


def test_sizes():
    texts = ["4", "64K", "1m", "2GiB", "16B", "1KB"]
    assert [workloads.parse_size(t) for t in texts] == [4, 65536, 2**20, 2**31, 16, 1024]
    assert workloads.DEFAULT_SIZES[0] == 4 and workloads.DEFAULT_SIZES[-1] == 2**26


@pytest.mark.parametrize("text", ["", "0", "-4", "4T", "1.5K", "K", "4 K"])
def test_no_sizes(text):
    with pytest.raises(ValueError, match=rf"'{re.escape(text)}'; write bytes"):
        workloads.parse_size(text)


def test_sets_of_tensors():
    found = workloads.parse_tensors("500x1K")
    assert found.shapes == ((256,),) * 500 and found.name == "500 x 1 KiB"


@pytest.mark.parametrize("text", ["500", "x1K", "0x4", "ax4", "3x6", "3x"])
def test_no_sets_of_tensors(text):
    with pytest.raises(ValueError, match=r"'.*'; write (COUNTxSIZE|bytes|a size)"):
        workloads.parse_tensors(text)


def test_bytes_for_people():
    sizes = [4, 1000, 1024, 3 * 2**20, 2**31, 102_228_128, 12_345]
    assert [workloads.format_bytes(n) for n in sizes] == [
        "4 B",
        "1000 B",
        "1 KiB",
        "3 MiB",
        "2 GiB",
        "102.2 MB",
        "12.3 KB",
    ]
