"""A job that finds its settings while it runs: the sums stay right, and what it found is kept."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from mpi import run_ranks

PROGRAM = """
import numpy as np
import tensorflow as tf
import tfhvd as hvd
from pathlib import Path

hvd.init()

@tf.function
def step(count):
    tensors = [tf.fill([64], count + tf.cast(hvd.rank() + i, tf.float32)) for i in range(4)]
    return tf.stack([hvd.allreduce(t, op=hvd.Sum, name=f"t{i}") for i, t in enumerate(tensors)])

log = Path("log.csv")
expected = np.array([hvd.size() * i + sum(range(hvd.size())) for i in range(4)], np.float32)
for turn in range(400):
    for count in range(500):
        sums = step(tf.constant(float(count))).numpy()
        np.testing.assert_array_equal(sums, (expected + hvd.size() * count)[:, None] + np.zeros(64))
    done = hvd.rank() == 0 and log.exists() and "result" in log.read_text()
    if hvd.broadcast_object(done, 0):
        break
else:
    raise SystemExit("it has not come to an end")
print(hvd.metrics().unlocked["term_over"])
"""


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "log.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.thorough
def test_what_was_found_is_logged_remembered_and_compared_again(tmp_path):
    settings = {
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": str(tmp_path / "log.csv"),
        "TFHVD_AUTOTUNE_FILE": str(tmp_path / "cache" / "found"),
        "HOROVOD_FUSION_THRESHOLD": "0",
    }
    program = PROGRAM.replace('"log.csv"', repr(settings["HOROVOD_AUTOTUNE_LOG"]))
    job = run_ranks(2, program, env=settings, timeout=300)
    assert job.code == 0, job
    assert all(int(rank.out) >= 4 for rank in job.ranks)  # blocks of steps ended as they should
    first, *_, result = rows(tmp_path)
    # What the user has set is compared with the defaults.
    assert (first["against_fusion_threshold"], first["fusion_threshold"]) == ("0", str(128 << 20))
    assert result["verdict"].startswith("result: ")
    line = (tmp_path / "cache" / "found").read_text().split()
    names = ("step", "bucket_bytes", "fusion_threshold", "alone_bytes")
    assert line == [result[name] for name in names]

    # The next job begins with what this one found, here something else that it would not have.
    known = f"{line[0]} {8 << 20} 1024 {1 << 20}\n"
    (tmp_path / "cache" / "found").write_text(known)
    (tmp_path / "log.csv").unlink()
    # It need not come to an end: only what it begins with is looked at.
    program = program.replace('"result" in log.read_text()', 'log.read_text().count("\\n") > 1')
    job = run_ranks(2, program, env=settings, timeout=300)
    assert job.code == 0, job
    assert rows(tmp_path)[0]["fusion_threshold"] == "1024"
    assert rows(tmp_path)[0]["against_fusion_threshold"] == "0"


@pytest.mark.thorough
def test_without_it_nothing_is_tried_or_written(tmp_path):
    program = PROGRAM.replace("range(400)", "range(1)").replace("if hvd", "if True or hvd")
    program = program.replace("range(500)", "range(50)")
    env = {"XDG_CACHE_HOME": str(tmp_path), "TFHVD_AUTOTUNE_LOG": str(tmp_path / "log")}
    job = run_ranks(2, program, env=env)
    assert job.code == 0, job
    assert [rank.out for rank in job.ranks] == ["0\n", "0\n"]
    assert not (tmp_path / "tfhvd").exists() and not (tmp_path / "log").exists()
