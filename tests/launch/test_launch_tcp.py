"""Jobs whose ranks are started and meet without any MPI: ``tfhvdrun --transport tcp``."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import children
import network
import pytest
from launching import TFHVDRUN, environment, launch, script, started, wait_until_gone
from mpi import wait_for
from variants import also

from tfhvd.launch import cli
from tfhvd.launch.errors import UsageError
from tfhvd.launch.placement import mpi
from tfhvd.launch.placement.command_line import build_without_mpi
from tfhvd.launch.state.hosts import Host, place
from tfhvd.launch.state.job_spec import Job
from tfhvd.network import address, handshake
from tfhvd.protocol import endpoints

TCP = ("--transport", "tcp")
AGENT = ["python", "-E", "-S", "/opt/tfhvd/launch/agent/agent.py"]

JOB = """
import tensorflow as tf
import tfhvd as hvd
hvd.init()
n, rank = hvd.size(), hvd.rank()

@tf.function
def step():
    return [hvd.allreduce(tf.fill([size], rank + 1.0), op=hvd.Sum, name=f"sum{size}")
            for size in (3, 50_000, 1_000_000)]

for _ in range(12):  # it is agreed first, and then locked
    for value in step():
        tf.debugging.assert_equal(value, tf.fill(value.shape, n * (n + 1) / 2))
rows = hvd.allgather(tf.fill([rank + 1, 2], rank))
tf.debugging.assert_equal(rows[:, 0], tf.repeat(tf.range(n), tf.range(n) + 1))
for root in range(n):
    tf.debugging.assert_equal(hvd.broadcast(tf.fill([50_000], rank), root), tf.fill([50_000], root))
sent = hvd.alltoall(tf.range(n) + 10 * rank)
tf.debugging.assert_equal(sent[0] if isinstance(sent, tuple) else sent, 10 * tf.range(n) + rank)
pair = hvd.add_process_set([0, n - 1]) if n > 2 else hvd.global_process_set
if pair.included():
    value = hvd.allreduce(1.0, op=hvd.Sum, process_set=pair)
    tf.debugging.assert_equal(value, float(pair.size()))
hvd.barrier()
hvd.shutdown()
hvd.init()
tf.debugging.assert_equal(hvd.allreduce(1.0, op=hvd.Sum), float(n))
loaded = sorted({line.split()[-1] for line in open("/proc/self/maps") if "libmpi" in line})
print(f"rank {rank} of {n}, {hvd.local_size()} here {loaded}\\n", end="", flush=True)
"""


def line_of(job: Job, exported: tuple[str, ...] = ()) -> list[str]:
    placed = place(job.hosts or (Host("localhost", job.num_proc),), job.num_proc)
    return build_without_mpi(job, placed, Path("/home/ann"), AGENT, exported, ("-p", "22"))


def test_the_line_names_the_ranks_of_each_host():
    hosts = (Host("localhost", 2), Host("far", 2), Host("farther", 4))
    line = line_of(Job(("train",), 5, hosts=hosts), ("PATH",))
    assert line[:-1] == [*AGENT[:-1], "/opt/tfhvd/launch/agent/spawn.py"]
    spec = json.loads(line[-1])
    assert [host["ranks"] for host in spec["hosts"]] == [[0, 1], [2, 3], [4]]
    assert spec["hosts"][0]["words"] == []
    assert spec["hosts"][1]["words"][0] == "ssh" and spec["hosts"][1]["words"][-1] == "far"
    assert spec["agent"] == [*AGENT, "train"]
    assert (spec["names"], spec["folder"]) == (["PATH"], "/home/ann")


def test_ranks_that_no_host_has_room_for_are_an_error():
    result = launch(*TCP, "-np", 3, "-H", "localhost:2", "true")
    assert result.code == 2, result.err
    assert "3" in result.err and "2" in result.err, result.err


def test_a_rank_inherits_its_port_once():
    port = endpoints.Port(1, endpoints.LOOPBACK, "t" * 32)
    assert port.addresses.startswith("127.0.0.1:")
    environ = port.hand_over(["a:1", port.addresses], "salt")
    found = endpoints.take(environ)
    assert found is not None
    with socket.socket(fileno=found.listener) as listener:
        token = handshake.derived("t" * 32, "salt")
        assert (found.rank, found.addresses[0], found.token) == (1, "a:1", token)
        assert f"127.0.0.1:{listener.getsockname()[1]}" == found.addresses[1]
        assert not os.get_inheritable(found.listener)
    assert environ == {}
    assert endpoints.take(environ) is None


def test_a_rank_that_comes_later_inherits_its_place():
    hosts = ["a", "b", "a"]
    environ = endpoints.Port(7, endpoints.LOOPBACK, "").hand_over([], "", True, hosts, 2)
    found = endpoints.take(environ)
    assert found is not None
    os.close(found.listener)
    os.close(found.members)
    assert (found.rank, found.hosts, found.place) == (7, ("a", "b", "a"), 2)
    assert found.comes_later


def test_what_leads_to_the_launcher_is_tried_first(monkeypatch):
    monkeypatch.setattr(address, "_towards", lambda host: [f"own-towards-{host}"])
    port = endpoints.Port(1, "", "", ["fd00::7"])
    number = port.addresses.rpartition(":")[2]
    assert port.addresses.startswith(f"own-towards-fd00::7:{number},")


@pytest.mark.parametrize("size", [also(1), 2, also(4)])
def test_ranks_meet_without_an_mpi(tmp_path, size):
    path = script(tmp_path, JOB)
    result = launch(*TCP, "-np", size, "--no-prefix", sys.executable, path, timeout=90)
    assert result.code == 0, result.err
    expected = [f"rank {rank} of {size}, {size} here []" for rank in range(size)]
    assert sorted(result.out.splitlines()) == expected


def test_where_there_is_no_mpirun_they_do_with_a_warning(monkeypatch):
    job = Job(("train",), 1)
    assert cli.find_mpi(job, warn=print) is not None
    assert cli.find_mpi(replace(job, transport="tcp"), warn=print) is None
    missing = mock.Mock(side_effect=UsageError("mpirun was not found"))
    monkeypatch.setattr(mpi, "find_mpirun", missing)
    said = []
    assert cli.find_mpi(job, warn=said.append) is None
    assert "mpirun was not found" in said[0] and "--transport tcp" in said[0]
    with pytest.raises(UsageError, match="mpirun was not found"):
        cli.find_mpi(replace(job, transport="mpi"), warn=print)


FAILS = """
import tfhvd as hvd
hvd.init()
for number in range(100):
    hvd.allreduce(1.0, name="sum")
    if number == 50 and hvd.rank() == 1:
        {end}
"""


NO_DIGIT = "ValueError: no such digit"

# The process around the rank, which passes on what the rank says, is late by a second.
RAISES_UNHEARD = """
        subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {os.getppid()}"])
        os.kill(os.getppid(), signal.SIGSTOP)
        raise ValueError("no such digit")
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", 137, "killed by SIGKILL", id="killed"),
        pytest.param("raise ValueError('no such digit')", 1, NO_DIGIT, id="raises"),
        pytest.param(RAISES_UNHEARD, 1, NO_DIGIT, id="is heard late"),
    ],
)
def test_a_rank_that_is_lost_is_named_by_the_others(tmp_path, end, code, says):
    path = script(tmp_path, FAILS.format(end=end))
    result = launch(*TCP, "-np", 3, sys.executable, path)
    assert result.code == code, result.err
    for rank in (0, 2):
        own = [line for line in result.err.splitlines() if line.startswith(f"[{rank}]")]
        assert any("rank 1" in line for line in own), result.err
    assert result.own_lines[0].startswith("tfhvdrun: rank 1 on host "), result.err
    assert says in "\n".join(result.own_lines), result.err
    assert wait_until_gone(str(path)) == []


@pytest.mark.thorough
def test_a_rank_that_differs_is_told_so(tmp_path):
    path = script(
        tmp_path,
        """
import tensorflow as tf
import tfhvd as hvd
hvd.init()
try:
    hvd.allreduce(tf.ones(2 + hvd.rank()), name="shape")
except tf.errors.InvalidArgumentError as error:
    print(f"{error.message}\\n", end="")
tf.debugging.assert_equal(hvd.allreduce(1.0), 1.0)
""",
    )
    result = launch(*TCP, "-np", 2, sys.executable, path)
    assert result.code == 0, result.err
    assert result.out.count("Mismatched shapes in allreduce 'shape'") == 2, result.out


SLEEPS = """
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", __file__])
print("up\\n", end="", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job_and_leaves_nothing(tmp_path, number):
    path = script(tmp_path, SLEEPS)
    with started(*TCP, "-np", 2, sys.executable, path) as process:
        assert [process.stdout.readline() for _ in range(2)]
        process.send_signal(number)
        _, err = process.communicate(timeout=15)
    assert process.returncode == 128 + number, err
    assert wait_until_gone(str(path)) == []


def test_the_death_of_what_starts_the_ranks_ends_the_job(tmp_path):
    path = script(tmp_path, SLEEPS)
    with started(*TCP, "-np", 2, sys.executable, path) as process:
        assert [process.stdout.readline() for _ in range(2)]
        [manager] = children.of(process.pid)
        os.kill(manager, signal.SIGKILL)
        _, err = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "tfhvd's process manager was killed by SIGKILL" in err, err
    assert wait_until_gone(str(path)) == []


def test_the_death_of_the_launcher_ends_the_job(tmp_path):
    path = script(tmp_path, SLEEPS)
    with started(*TCP, "-np", 2, sys.executable, path) as process:
        assert [process.stdout.readline() for _ in range(2)]
        process.kill()
        process.wait()
        assert wait_until_gone(str(path)) == []


def test_a_host_that_cannot_be_reached_is_named(tmp_path):
    agent = tmp_path / "agent"
    agent.write_text("#!/bin/sh\necho no route to $1 >&2\nexit 255\n")
    agent.chmod(0o755)
    words = ("-H", "far.invalid:1", "--remote-shell", agent)
    result = launch(*TCP, "-np", 1, *words, "true")
    assert result.code == 2 and "far.invalid" in result.err, result.err
    result = launch(*TCP, "-np", 1, *words, "--no-ssh-check", "true")
    assert result.code == 255, result.err
    assert "no route to far.invalid" in result.err
    assert "ended (exit code 255) before 1 of 1 ranks had started" in result.own_lines[-1]


def on_hosts(net: network.Network, ranks_per_host: int, path: Path) -> list[str]:
    words = net.tfhvdrun(ranks_per_host)
    return [*net.run_on(0), *TFHVDRUN, *TCP, "--no-prefix", *words, sys.executable, str(path)]


@pytest.mark.thorough
@pytest.mark.parametrize(("hosts", "each"), [(2, 2), (3, 1)])
def test_ranks_of_several_hosts_meet(tmp_path, hosts, each):
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    path = script(tmp_path, JOB)
    with network.hosts(hosts) as net:
        net.add_bridge(net.names[0], "docker0", "172.17.0.1/16")  # leads nowhere
        net.add_bridge(net.names[1], "docker0", "172.17.0.1/16")
        ran = subprocess.run(
            on_hosts(net, each, path), env=environment(), capture_output=True, text=True, timeout=90
        )
    assert ran.returncode == 0, ran.stderr
    size = hosts * each
    expected = [f"rank {rank} of {size}, {each} here []" for rank in range(size)]
    assert sorted(ran.stdout.splitlines()) == expected


TRAINS = """
import pathlib
import tfhvd as hvd
hvd.init()
while True:
    hvd.allreduce(1.0, name="sum")
    pathlib.Path(__file__).with_name("trains").touch()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("deed", ["cut off", "ssh is killed"])
def test_a_host_that_is_lost_ends_the_job(tmp_path, deed):
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    path = script(tmp_path, TRAINS)
    with network.hosts(2) as net:
        with subprocess.Popen(
            on_hosts(net, 1, path),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as job:
            wait_for((tmp_path / "trains").exists)
            if deed == "cut off":
                net.cut_off(1)
            else:
                subprocess.run(["pkill", "-KILL", "-f", f"{net.names[1]} .*spawn.py"], check=True)
            _, errors = job.communicate(timeout=100)
        assert job.returncode not in (0, None), errors
        assert f"rank 1 on host {net.names[1]}" in errors, errors
    assert wait_until_gone(str(path)) == []
