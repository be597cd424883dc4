"""Words -> Options, and one clear line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfhvd.bench import plot
from tfhvd.bench.measure import Effort
from tfhvd.bench.options import UsageError, parse
from tfhvd.bench.workloads import DEFAULT_SIZES, parse_tensors


def test_without_words_all_collectives_are_measured():
    got = parse([])
    assert got.collectives is None and got.sizes == DEFAULT_SIZES and got.dtype == "float32"
    assert got.rivals == ("mpi",) and not got.rivals_wanted
    assert got.models == () and got.tensors == () and got.json is None and got.progress


def test_what_is_named_is_all_that_is_measured():
    assert parse(["--model", "bert", "tiny"]).collectives == ()
    assert parse(["--tensors", "2x1K"]).tensors == (parse_tensors("2x1K"),)
    both = parse(["--model", "bert", "--collectives", "broadcast", "--sizes", "4", "1K", "4"])
    assert both.collectives == ("broadcast",) and both.models == ("bert",)
    assert both.sizes == (4, 1024)


def test_the_other_options():
    words = (
        "--rivals mwms horovod --eager --device gpu --threads 4 --repetitions 9 --seconds 0.5 "
        "--json a.json --no-progress --dtype bfloat16"
    )
    got = parse(words.split())
    assert got.rivals == ("mwms", "horovod") and got.rivals_wanted
    assert got.eager and got.device == "gpu" and got.threads == 4
    assert got.effort == Effort(9, 0.5)
    assert got.json == Path("a.json") and not got.progress and got.dtype == "bfloat16"
    assert parse(["--rivals", "none"]).rivals == ()


def test_help_shows_examples():
    for words in (["-h"], ["--sizes", "nonsense", "--help"]):
        text = parse(words).help
        assert "tfhvdrun -np 2 python -m tfhvd.bench --model resnet50 bert" in text
        assert "--plot PNG" in text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--sizes 3x", "--sizes: not a size: '3x'; write bytes, 1 or more"),
        ("--tensors 5", "not a set of tensors: '5'; write COUNTxSIZE"),
        ("--tensors 5x3", "multiple of 4"),
        ("--collectives gather", "--collectives has no gather; choose from allreduce,"),
        ("--model vgg", "invalid choice: 'vgg'"),
        ("--model tiny --sizes 4", "Name them: --collectives allreduce"),
        ("--rivals none mpi", "--rivals none mpi is contradictory; write only none"),
        ("--repetitions 0", "not a count: '0'; write a number above 0"),
        ("--repetitions many", "not a count: 'many'"),
        ("--seconds nan", "not a time: 'nan'"),
        ("--seconds -1", "not a time: '-1'"),
        ("--dtype float", "invalid choice: 'float'"),
        ("--modle bert", "unrecognized arguments: --modle bert. For all options: python -m"),
    ],
)
def test_mistakes(words, text):
    with pytest.raises(UsageError) as error:
        parse(words.split())
    assert text in str(error.value)


def test_a_picture_needs_matplotlib(monkeypatch):
    monkeypatch.setattr(plot, "missing", lambda: "It needs matplotlib. Type: pip ...")
    with pytest.raises(UsageError, match=r"--plot a\.png cannot be drawn\. It needs matplotlib"):
        parse(["--plot", "a.png"])
