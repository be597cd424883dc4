"""tfhvd doctor as users run it: here, and on hosts with a network between them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import network
import pytest
from commands import environment, tfhvd

LINK = network.Link(megabits=200, milliseconds=0.2)


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    """The checks by their names, of which each is there once."""
    found = json.loads(done.stdout)["checks"]
    assert len({check["check"] for check in found}) == len(found), found
    return {check["check"]: check for check in found}


def test_two_ranks_here():
    done = tfhvd("doctor", "-np", 2, "--json")
    assert done.returncode == 0 and not done.stderr, done
    answer = json.loads(done.stdout)
    assert answer["ok"] is True
    assert checks(done).keys() == {
        *("versions", "cores", "load", "memory", "room", "limits", "network", "links", "clocks"),
        *("gpus", "meeting"),
    }
    assert checks(done)["meeting"]["status"] == "passed"
    assert list(answer["ranks"]) == ["0", "1"]
    assert list(answer["hosts"].values()) == [[0, 1]]
    (link,) = answer["links"]
    assert link["measured"]["up"] > 0 and not link["measured"]["error"]


def test_for_people():
    done = tfhvd("doctor", TFHVD_CYCLE_TIMES="1")
    assert done.returncode == 0 and not done.stderr, done
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1 rank on 1 host: ")
    assert lines[-1].startswith("tfhvd doctor: ") and lines[-1].endswith(" warned")
    at = next(at for at, line in enumerate(lines) if line.startswith("  WARNED  meeting "))
    assert "TFHVD_CYCLE_TIMES" in lines[at]
    assert lines[at + 1].strip() == "fix: the message says what to do"
    assert all(line.startswith(("  passed  ", "  WARNED  ", " " * 10)) for line in lines[1:-1])


@pytest.mark.thorough
def test_cores_that_ranks_share():
    core = str(min(os.sched_getaffinity(0)))
    done = tfhvd("doctor", "-np", 2, "--json", within=["taskset", "-c", core])
    assert done.returncode == 0, done
    assert checks(done)["cores"]["status"] == "warned"
    assert checks(done)["cores"]["text"].endswith("2 ranks on 1 core: they take turns")


def test_a_setting_with_which_no_job_begins():
    done = tfhvd("doctor", "-np", 2, "--json", TFHVD_CYCLE_TIME="soon")
    assert done.returncode == 1, done
    assert checks(done)["meeting"]["status"] == "failed"
    assert "TFHVD_CYCLE_TIME" in checks(done)["meeting"]["text"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-np", "x"], "tfhvd doctor: error: -np must be a whole number"),
        (["-np", "4", "-H", "localhost:2"], "tfhvd doctor: error: -np 4 asks for more ranks"),
        (["--nothing"], "unrecognized arguments: --nothing"),
    ],
)
def test_wrong_usage(words, said):
    done = tfhvd("doctor", *words)
    assert done.returncode == 2 and said in done.stderr


def test_an_interface_that_is_not_there():
    done = tfhvd("doctor", "-np", 2, "--nics", "nothing0")
    assert done.returncode == 1
    assert "there is no interface nothing0 that is up" in done.stdout


def test_ranks_that_do_not_start(tmp_path):
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 5.0.1" && exit\n'
        'echo "no daemon"; exit 7\n'
    )
    mpirun.chmod(0o755)
    done = tfhvd("doctor", "-np", 2, "--mpirun", mpirun)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert "FAILED  start  mpirun ended (exit code 7) before 2 of 2 ranks had started" in lines[0]
    assert lines[2].strip() == "no daemon"


def test_nothing_is_left_of_a_doctor_that_is_killed():
    line = [sys.executable, "-m", "tfhvd", "doctor", "-np", "2"]
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"

    def left() -> list[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark.encode() in (process / "environ").read_bytes():
                    found.append(process.name)
        return found

    with subprocess.Popen(line, env=environment(MARK=mark), stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        while len(left()) < 4 and time.monotonic() < until:  # the launcher, mpirun, probes
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 30
    while left() and time.monotonic() < until:
        time.sleep(0.1)
    assert not left()


def on_hosts(net: network.Network, *words: object) -> subprocess.CompletedProcess[str]:
    hosts = ",".join(f"{name}:1" for name in net.names)
    where = ["-H", hosts, "--remote-shell", net.agent]
    return tfhvd("doctor", *where, "--json", *words, within=net.run_on(0))


needs_network = pytest.mark.skipif(
    not network.available(), reason="only root can make hosts with networks of their own"
)


@pytest.fixture
def bridged() -> Iterator[network.Network]:
    """Two hosts, each with a bridge of its own that has the same address as the other's."""
    with network.hosts(2) as net:
        for name in net.names:
            net.add_bridge(name, "docker0", "172.17.0.1/16")
        yield net


@pytest.mark.thorough
@needs_network
def test_two_hosts(bridged):
    done = on_hosts(bridged, "--network-interfaces", "net0")
    assert done.returncode == 0 and not done.stderr, done
    found = checks(done)
    assert found["hosts"]["text"] == "1 other host reached, with the same tfhvd"
    assert found["network"]["text"] == "all hosts share 10.77.0.0/24 (net0)"
    assert found["meeting"]["status"] == "passed"
    answer = json.loads(done.stdout)
    assert answer["hosts"] == {name: [rank] for rank, name in enumerate(bridged.names)}
    (link,) = answer["links"]
    assert link["measured"]["address"] == "10.77.0.2" and link["measured"]["down"] > 0
    assert [clock["host"] for clock in answer["clocks"]] == bridged.names


@needs_network
@pytest.mark.thorough
def test_a_bridge_of_each_host_that_mpi_takes_for_a_network(bridged):
    done = on_hosts(bridged)
    assert checks(done)["network"]["status"] == "warned", done
    assert checks(done)["network"]["fix"].startswith("--network-interfaces net0,")


@needs_network
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("last", "said"),
    [
        (network.Link(20), "slow, and all of host {}: "),
        (network.Link(200, receives=20), "slow one way, and all of host {}: "),
    ],
)
def test_a_host_with_a_slow_link(last, said):
    with network.hosts(3, LINK, {2: last}) as net:
        done = on_hosts(net)
        assert done.returncode == 0, done
        about = [c for c in json.loads(done.stdout)["checks"] if c["check"] == "links"]
        assert all(check["status"] == "warned" for check in about)
        assert about[0]["text"].startswith(said.format(net.names[2]))
        assert net.names[0] in about[0]["text"] and net.names[1] in about[0]["text"]
