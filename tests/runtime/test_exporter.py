"""TFHVD_METRICS_PORT and TFHVD_METRICS_FILE: what Prometheus gets of a job."""

import re
import socket

import mpi

EXCHANGE = """
import numpy as np, tfhvd as hvd
hvd.init()
for _ in range(3):
    hvd.allreduce(np.ones(10, "float32"), name="x")
"""
# Without TensorFlow, which takes its time to start.
MEET = """
import tfhvd as hvd
from tfhvd.runtime.library import load_native
hvd.init()
load_native().join()
"""
ASK = """
from urllib.request import urlopen
with urlopen(f"http://127.0.0.1:{PORT + hvd.local_rank()}/metrics", timeout=30) as answer:
    print(answer.read().decode())
hvd.barrier()
"""
HIDE = "import sys; sys.modules['prometheus_client'] = None\n"


def value(text: str, name: str, **labels: str) -> float:
    """The value of the only sample of this name that has these labels."""
    wanted = [f'{label}="{text}"' for label, text in labels.items()]
    found = [
        line.split()[-1]
        for line in text.splitlines()
        if re.match(rf"{name}\{{", line) and all(label in line for label in wanted)
    ]
    assert len(found) == 1, (name, labels, text)
    return float(found[0])


def two_free_ports() -> int:
    """The first of two ports, one after the other, that nobody listens on."""
    for _ in range(100):
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("", 0))
            port = one.getsockname()[1]
            try:
                next_one.bind(("", port + 1))
            except (OSError, OverflowError):
                continue
            return port
    raise AssertionError("no two free ports")


def test_each_rank_serves_its_own():
    port = two_free_ports()
    text = EXCHANGE + ASK.replace("PORT", str(port))
    job = mpi.run_ranks(2, text, env={"TFHVD_METRICS_PORT": str(port)})
    assert job.code == 0, job
    for rank, ended in enumerate(job.ranks):
        own = {"on_rank": str(rank)}
        assert value(ended.out, "tfhvd_tensors_total", **own) == 3
        assert value(ended.out, "tfhvd_bytes_total", **own) == 120
        assert value(ended.out, "tfhvd_collectives_total", outcome="ok", **own) == 3
        assert value(ended.out, "tfhvd_wait_seconds_total", rank=str(1 - rank), **own) >= 0
        assert f',rank="{rank}"' not in ended.out, job
        assert "# TYPE tfhvd_bytes_total counter" in ended.out, job


def test_a_file_has_the_last_numbers(tmp_path):
    path = tmp_path / "metrics-{rank}.prom"
    job = mpi.run_ranks(2, MEET, env={"TFHVD_METRICS_FILE": str(path)})
    assert job.code == 0, job
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "metrics-0.prom",
        "metrics-1.prom",
    ], job
    for rank in range(2):
        text = (tmp_path / f"metrics-{rank}.prom").read_text()
        assert value(text, "tfhvd_collectives_total", outcome="ok", on_rank=str(rank)) == 1


def test_without_a_number_rank_0_writes_alone(tmp_path):
    path = tmp_path / "metrics.prom"
    job = mpi.run_ranks(2, MEET, env={"TFHVD_METRICS_FILE": str(path)})
    assert job.code == 0, job
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.prom"]
    assert value(path.read_text(), "tfhvd_collectives_total", outcome="ok", on_rank="0") == 1


def test_the_job_goes_on_without(tmp_path):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        env = {
            "TFHVD_METRICS_PORT": str(taken.getsockname()[1]),
            "TFHVD_METRICS_FILE": str(tmp_path / "none" / "metrics.prom"),
        }
        job = mpi.run_ranks(1, MEET, env=env)
        assert job.code == 0, job
        assert "rank 0 serves no metrics on port" in job.ranks[0].err, job
        assert "rank 0 writes no metrics into" in job.ranks[0].err, job
        job = mpi.run_ranks(1, HIDE + MEET, env=env)
    assert job.code == 0, job
    assert "pip install prometheus_client" in job.ranks[0].err, job
