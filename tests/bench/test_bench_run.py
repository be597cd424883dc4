"""The program itself, on 1 rank and on 2: what it prints and writes, never how long it took."""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace

import mpi
import pytest
import tensorflow as tf

from tfhvd.bench.collectives import COLLECTIVES
from tfhvd.bench.subjects import Setting, WrongResultError, of_collective, of_tensors
from tfhvd.bench.workloads import parse_tensors

QUICK = ["--repetitions", "5", "--seconds", "0.001"]
KEYS = {
    "kind", "workload", "subject", "bytes", "tensors", "repetitions", "min_us", "p50_us", "p99_us",
    "processor_us", "switches", "algbw_GBps", "busbw_GBps", "images_per_second",
}  # fmt: skip

# Stands for Horovod, which cannot be in one environment with tfhvd: the same calls, other names.
STAND_IN = """
import tfhvd
from tfhvd import Sum, rank, size

def init(): pass
def shutdown(): pass
def allreduce(x, op, name): return tfhvd.allreduce(x, op=op, name="other." + name)
"""


def bench(ranks, *words, **env):
    return mpi.run_ranks(
        ranks, ["-m", "tfhvd.bench", *map(str, words)], mpirun=ranks > 1, env=env, timeout=200
    )


def rows_of(path):
    document = json.loads(path.read_text())
    assert document["format"] == 1
    assert all(row.keys() == KEYS for row in document["rows"])
    return document, document["rows"]


@pytest.mark.thorough
def test_everything_on_two_ranks(tmp_path):
    package = tmp_path / "horovod"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tensorflow.py").write_text(STAND_IN)
    out = tmp_path / "out.json"
    words = (
        "--collectives allreduce reducescatter alltoall --sizes 4 1K --tensors 3x1K --model tiny "
        "--rivals"
    )
    path = os.pathsep.join([str(tmp_path), str(mpi.ROOT)])
    job = bench(2, *words.split(), "mpi", "horovod", "mwms", *QUICK, "--json", out, PYTHONPATH=path)
    assert [rank.code for rank in job.ranks] == [0, 0], job
    document, rows = rows_of(out)
    assert document["ranks"] == 2 and document["hosts"] == 1 and not document["notes"], document

    found = {}
    for row in rows:
        found.setdefault((row["kind"], row["workload"], row["bytes"]), []).append(row["subject"])
        assert 0 < row["min_us"] <= row["p50_us"] <= row["p99_us"]
        if row["kind"] != "training":
            assert row["processor_us"] > 0 and row["switches"] >= 0
    rivals = ["tfhvd", "Horovod", "MPI"]
    of_sets = ["tfhvd", "Horovod", "one tf.concat", "MPI"]
    mwms = "MultiWorkerMirrored"
    assert found == {
        ("collective", "allreduce", 4): ["tf.identity", *rivals, mwms],
        ("collective", "allreduce", 1024): ["tf.identity", *rivals, mwms],
        ("collective", "reducescatter", 8): ["tf.identity", "tfhvd", "MPI"],
        ("collective", "reducescatter", 1024): ["tf.identity", "tfhvd", "MPI"],
        ("collective", "alltoall", 8): ["tf.identity", "tfhvd", "MPI"],
        ("collective", "alltoall", 1024): ["tf.identity", "tfhvd", "MPI"],
        ("gradients", "3 x 1 KiB", 3072): ["tf.identity", *of_sets, "memcpy", mwms],
        ("gradients", "tiny", 10_040_464): ["tf.identity", *of_sets, "memcpy", mwms],
        ("training", "fit of tiny", 10_040_464): ["alone", "tfhvd"],
    }
    for row in rows:
        carries = row["subject"] not in ("tf.identity", "memcpy", "alone")
        if row["kind"] == "training":
            expected = 2 * 64 / (row["p50_us"] / 1e6)
            assert row["images_per_second"] == pytest.approx(expected)
        elif carries:
            expected = row["bytes"] / (row["p50_us"] / 1e6) / 1e9
            assert row["algbw_GBps"] == pytest.approx(expected)
            part = 0.5 if row["workload"] in ("reducescatter", "alltoall") else 1.0
            assert row["busbw_GBps"] == pytest.approx(part * expected)

    # The table and the progress are rank 0's; each row of the JSON is a line.
    text = job.ranks[0].out
    assert job.ranks[1].out == "" and "tfhvd.bench" not in job.ranks[1].err
    assert sum(" us" in line or " ms" in line for line in text.splitlines()) == len(rows)
    assert "tfhvd.bench: 1/10 MultiWorkerMirroredStrategy" in job.ranks[0].err
    assert "tfhvd.bench: 10/10 training of tiny" in job.ranks[0].err
    assert not job.left


@pytest.mark.thorough
def test_what_reduces_the_tensors(tmp_path):
    out = tmp_path / "out.json"
    words = "--tensors 3x1K --through ops tape optimizer --rivals none --json"
    job = bench(2, *words.split(), out, *QUICK)
    assert [rank.code for rank in job.ranks] == [0, 0], job
    _, rows = rows_of(out)
    assert [(row["workload"], row["subject"]) for row in rows if row["subject"] != "memcpy"] == [
        ("3 x 1 KiB", "tf.identity"),
        ("3 x 1 KiB", "tfhvd"),
        ("3 x 1 KiB", "one tf.concat"),
        ("3 x 1 KiB, tape", "plain tape"),
        ("3 x 1 KiB, tape", "tfhvd"),
        ("3 x 1 KiB, tape", "one tf.concat"),
        ("3 x 1 KiB, optimizer", "plain optimizer"),
        ("3 x 1 KiB, optimizer", "tfhvd"),
        ("3 x 1 KiB, optimizer", "one tf.concat"),
    ]
    above = [line.split()[-7] for line in job.ranks[0].out.splitlines() if " tfhvd " in line]
    assert len(above) == 3 and "-" not in above, job.ranks[0].out


@pytest.mark.parametrize("through", ["tape", "optimizer"])
def test_a_wrong_sum_is_not_timed(through):
    class Keras:
        @staticmethod
        def DistributedOptimizer(optimizer, op):  # noqa: N802
            del op
            return optimizer

    class OfTwoRanks(SimpleNamespace):
        @staticmethod
        def DistributedGradientTape(tape, op):  # noqa: N802
            del op
            return tape

    package = OfTwoRanks(__name__="of_two_ranks", Sum=None, rank=lambda: 0, size=lambda: 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "of_two_ranks.keras", Keras)
        patch.setitem(sys.modules, "of_two_ranks", package)
        with pytest.raises(WrongResultError, match=r"from 1\.0 to 1\.0\. Expected: .*3"):
            of_tensors("x", package, parse_tensors("2x1K"), Setting(), through)


def test_alone(tmp_path):
    out = tmp_path / "out.json"
    words = ["--sizes", "16", "--dtype", "bfloat16", "--eager", "--no-progress", "--json", out]
    job = bench(1, *words, *QUICK)
    assert job.ranks[0].code == 0, job
    document, rows = rows_of(out)
    # All collectives that there are; MPI is missing, which is a note and no error.
    assert {row["workload"] for row in rows} >= {"allreduce", "allgather", "broadcast"}
    assert {row["subject"] for row in rows} == {"tf.identity", "tfhvd"}
    assert {row["busbw_GBps"] for row in rows if row["subject"] == "tfhvd"} == {0.0}
    assert ["MPI cannot be measured: one rank needs no MPI." in n for n in document["notes"]] == [
        True
    ]
    assert "note: MPI cannot be measured" in job.ranks[0].out
    assert "tfhvd.bench" not in job.ranks[0].err


@pytest.mark.thorough
def test_what_cannot_be_written_is_said_once_before_anything_is_measured():
    job = bench(2, "--json", "/nowhere/at/all.json")
    # mpirun ends the other once it sees the first: that may not come to a code of its own.
    assert job.code == 2 and {rank.code for rank in job.ranks} <= {2, None}, job
    said = "tfhvd.bench: --json /nowhere/at/all.json cannot be written; name a file in a folder"
    assert said in job.ranks[0].err and "tfhvd.bench" not in job.ranks[1].err
    assert job.ranks[0].out == ""


@pytest.mark.thorough
def test_a_rival_that_is_named_must_be_there():
    job = bench(1, "--collectives", "allreduce", "--rivals", "horovod")
    assert job.ranks[0].code == 2, job
    assert "Horovod cannot be measured: " in job.ranks[0].err
    assert "tests/perf/build_horovod.sh" in job.ranks[0].err


def test_help_and_mistakes_need_no_tensorflow():
    job = bench(1, "--help")
    assert job.ranks[0].code == 0 and "examples:" in job.ranks[0].out, job
    job = bench(1, "--sizes", "none")
    assert job.ranks[0].code == 2 and job.ranks[0].err.startswith("tfhvd.bench: argument --sizes")


def broken(result):
    """A package whose allreduce gives something else."""
    return SimpleNamespace(
        Sum="sum", rank=lambda: 0, size=lambda: 2, allreduce=lambda x, op, name: result(x)
    )


@pytest.mark.parametrize("result", [lambda x: x, lambda x: tf.concat([3 * x, x], 0)])
def test_a_wrong_result_is_no_time(result):
    with pytest.raises(WrongResultError, match=r"allreduce on rank 0\. Received: .*Expected: .*3"):
        of_collective(
            "x", broken(result), COLLECTIVES["allreduce"], 8, "float32", Setting(eager=True)
        )
    right = broken(lambda x: 3 * x)
    of_collective("x", right, COLLECTIVES["allreduce"], 8, "float32", Setting(eager=True))


def test_a_wrong_gradient_is_no_time():
    with pytest.raises(WrongResultError, match=r"2 x 4 B on rank 0\. Received: .*1\.0 to 1\.0"):
        of_tensors("x", broken(lambda x: x), parse_tensors("2x4"), Setting())
