"""The table's arithmetic, from plain values."""

from __future__ import annotations

import pytest
import table
import targets
from targets import Target, judge


def test_large_tensors_are_judged_by_time_and_by_both_rivals():
    target = Target("x", milliseconds=38, horovod=2.2, mpi=0.7)
    good = {"tf.identity": 0.001, "tfhvd": 0.030, "Horovod": 0.069, "MPI": 0.050}
    verdict = judge(target, good)
    assert verdict.met
    assert verdict.cells == {
        "tfhvd": "30 ms",
        "must reach": "≤ 38 ms",
        "Horovod / tfhvd": "2.30 (≥ 2.2)",
        "tfhvd / MPI": "0.60 (≤ 0.7)",
        "met": "yes",
    }
    for column, worse in (("tfhvd", 0.040), ("Horovod", 0.060), ("MPI", 0.040)):
        assert not judge(target, {**good, column: worse}).met


def test_small_tensors_are_judged_without_tensorflows_share():
    target = Target("x", milliseconds=0.06, above_identity=True, horovod=14)
    times = {"tf.identity": 0.00012, "tfhvd": 0.00017, "Horovod": 0.00108}
    verdict = judge(target, {**times, targets.RIVAL_ALONE: 0.00018})
    assert verdict.cells["tfhvd"] == "0.05 ms above identity"
    assert verdict.cells["Horovod / tfhvd"] == "18.00 (≥ 14)"
    assert verdict.met
    slower = judge(target, {**times, "tfhvd": 0.00024, targets.RIVAL_ALONE: 0.00018})
    assert slower.cells["met"] == "no"


def test_what_was_not_measured_is_not_judged():
    verdict = judge(Target("x", 38, horovod=2.2, mpi=0.7), {"tf.identity": 0.0, "tfhvd": 0.030})
    assert verdict.met and verdict.cells["Horovod / tfhvd"] == "-"


def test_fit_and_idle():
    assert targets.judge_fit(0.089, 0.100).met and not targets.judge_fit(0.087, 0.100).met
    assert targets.judge_idle(0.0099).met and not targets.judge_idle(0.01).met


@pytest.mark.parametrize(
    ("contender", "subject", "columns"),
    [
        ("tfhvd", "MPI", ["MPI"]),
        ("tfhvd", "tf.identity", ["tf.identity"]),
        ("Horovod", "Horovod", ["Horovod"]),
        ("Horovod", "tf.identity", ["alone beside Horovod"]),
        ("Horovod", "plain tape", ["alone beside Horovod"]),
        ("Horovod, Gloo", "Horovod", ["Horovod, Gloo"]),
        ("Horovod, Gloo", "tf.identity", []),
        ("MultiWorkerMirrored", "tfhvd", []),
        ("MultiWorkerMirrored", "MultiWorkerMirrored", ["MultiWorkerMirrored"]),
        ("Horovod", "alone", ["alone beside Horovod"]),
    ],
)
def test_rows_go_to_the_column_of_their_job(contender, subject, columns):
    assert list(table.columns_of(contender, {"subject": subject})) == columns


def test_the_whole_table():
    one = {"tf.identity": 0.0001, "tfhvd": 0.00015, "tfhvd p99": 0.0002, "MPI": 0.0000015}
    figures = {"1 x 4 B": one, table.FIT: {"alone": 0.09, "tfhvd": 0.1, "tfhvd p99": 0.2}}
    lines = table.markdown(table.rows_of(figures, 0.001)).splitlines()
    head, rule, *rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    assert head == [
        "case", "tfhvd, ms", "tfhvd p99, ms", "alone, ms", "MPI, ms", "judged", "must reach", "met",
    ]  # fmt: skip
    assert set("".join(rule)) == {"-"}
    assert rows == [
        ["1 x 4 B", "0.15", "0.2", "0.1", "0.0015", "0.05 ms above identity", "≤ 0.06 ms", "yes"],
        ["step of model.fit", "100", "200", "-", "-", "90% of alone", "≥ 88%", "yes"],
        ["idle job", "-", "-", "-", "-", "0.10% of a core", "< 1%", "yes"],
    ]
