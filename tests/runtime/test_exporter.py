"""TFHVD_METRICS_PORT and TFHVD_METRICS_FILE: what Prometheus gets of a job."""

import re
import socket

import mpi
import prometheus_client
import pytest

from tfhvd.telemetry import prometheus
from tfhvd.telemetry.metrics import Metrics

EXCHANGE = """
import numpy as np, tfhvd as hvd
hvd.init()
for _ in range(3):
    hvd.allreduce(np.ones(10, "float32"), name="x")
"""
# Without TensorFlow, which takes its time to start.
MEET = """
import tfhvd as hvd
from tfhvd.runtime.native import load_native
hvd.init()
load_native().join()
"""
ASK = """
from urllib.request import urlopen
with urlopen(f"http://127.0.0.1:{PORT + hvd.local_rank()}/metrics", timeout=30) as answer:
    print(answer.read().decode())
hvd.barrier()
"""
# By another address of the host than that of a local program.
ASK_FROM_ELSEWHERE = """
import socket
with socket.socket() as sock:
    print("reached:", sock.connect_ex(("127.0.0.2", PORT)) == 0)
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


COUNTS = Metrics(
    submitted=101,
    completed=102,
    failed=103,
    tensors=104,
    bytes=105,
    calls=106,
    fused_tensors=107,
    rounds=1000,
    locked_rounds=108,
    locked_steps=109,
    unlocked={"term_over": 110, "cancelled": 111},
    inline_runs=112,
    cache_hits=113,
    cache_misses=114,
    waits_by_rank={0: 115.5, 1: 116.5, 2: 117.5},
    waits_unknown=118.5,
)
EXPORTED = {
    'tfhvd_collectives_submitted_total{on_rank="0"}': 101,
    'tfhvd_collectives_total{on_rank="0",outcome="ok"}': 102,
    'tfhvd_collectives_total{on_rank="0",outcome="failed"}': 103,
    'tfhvd_tensors_total{on_rank="0"}': 104,
    'tfhvd_bytes_total{on_rank="0"}': 105,
    'tfhvd_calls_total{on_rank="0"}': 106,
    'tfhvd_fused_tensors_total{on_rank="0"}': 107,
    'tfhvd_rounds_total{by="messages",on_rank="0"}': 892,
    'tfhvd_rounds_total{by="votes",on_rank="0"}': 108,
    'tfhvd_locked_steps_total{on_rank="0"}': 109,
    'tfhvd_unlocked_steps_total{on_rank="0",reason="term_over"}': 110,
    'tfhvd_unlocked_steps_total{on_rank="0",reason="cancelled"}': 111,
    'tfhvd_inline_runs_total{on_rank="0"}': 112,
    'tfhvd_announcements_total{by="number",on_rank="0"}': 113,
    'tfhvd_announcements_total{by="name",on_rank="0"}': 114,
    'tfhvd_wait_seconds_total{on_rank="0",rank="1"}': 116.5,
    'tfhvd_wait_seconds_total{on_rank="0",rank="2"}': 117.5,
    'tfhvd_wait_seconds_total{on_rank="0",rank="unknown"}': 118.5,
}


def test_each_count_is_exported_under_its_name(monkeypatch):
    """Of rank 0, which does not wait for itself."""
    monkeypatch.setattr(prometheus, "read", lambda: COUNTS)
    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    registry.register(prometheus.Exporter())
    samples = [s for family in registry.collect() for s in family.samples]
    found = {}
    for sample in samples:
        labels = ",".join(f'{key}="{text}"' for key, text in sorted(sample.labels.items()))
        found[f"{sample.name}{{{labels}}}"] = sample.value
    assert found == EXPORTED
    assert len(samples) == len(EXPORTED)


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


@pytest.mark.thorough
def test_others_reach_the_port_where_an_address_is_given():
    port = str(two_free_ports())
    for address, reached in (("", False), ("0.0.0.0", True)):
        env = {"TFHVD_METRICS_PORT": port}
        env |= {"TFHVD_METRICS_ADDRESS": address} if address else {}
        job = mpi.run_ranks(1, MEET + ASK_FROM_ELSEWHERE.replace("PORT", port), env=env)
        assert job.code == 0, job
        assert f"reached: {reached}" in job.ranks[0].out, job


def test_an_address_of_another_host_is_an_error():
    env = {"TFHVD_METRICS_PORT": str(two_free_ports()), "TFHVD_METRICS_ADDRESS": "192.0.2.1"}
    job = mpi.run_ranks(1, MEET, env=env)
    assert job.code == 0, job
    assert "of 192.0.2.1: " in job.ranks[0].err, job
    assert "TFHVD_METRICS_ADDRESS" in job.ranks[0].err, job


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


@pytest.mark.thorough
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
