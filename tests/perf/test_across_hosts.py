"""across_hosts.py: what links allow, its table, and hosts that are far apart."""

from __future__ import annotations

import shutil
import subprocess
import sys

import across_hosts
import network
import pytest


def test_what_links_allow():
    link = network.Link(500)
    assert across_hosts.seconds_of_link(64 << 20, 2, link) == pytest.approx(1.0800, abs=1e-3)
    assert across_hosts.seconds_of_link(64 << 20, 4, link) == pytest.approx(1.6199, abs=1e-3)
    near = across_hosts.seconds_of_link(1000, 2, network.Link(1000))
    far = across_hosts.seconds_of_link(1000, 2, network.Link(1000, 5.0))
    assert far == pytest.approx(near + 0.01)


def test_a_table():
    figures = {"1 x 64 MiB": {"tfhvd": 1.5, "the link": 1.2, "bytes": 64 << 20}}
    assert across_hosts.table(figures, ["tfhvd", "MPI", "the link"]) == [
        "| case | tfhvd | MPI | the link | link/tfhvd |",
        "|---|---|---|---|---|",
        "| 1 x 64 MiB | 1500 ms | - | 1200 ms | 80% |",
    ]


_ANSWER = """
import socket
connection = socket.create_server(("", 5000)).accept()[0]
while data := connection.recv(1):
    connection.sendall(data)
"""

# Prints the seconds of each of four round trips.
_ASK = """
import socket, time
until = time.monotonic() + 10
while True:
    try:
        connection = socket.create_connection(("10.77.0.2", 5000))
        break
    except OSError:
        assert time.monotonic() < until
        time.sleep(0.05)
for _ in range(4):
    began = time.monotonic()
    connection.sendall(b"x")
    connection.recv(1)
    print(time.monotonic() - began)
"""


@pytest.mark.skipif(
    not network.available() or shutil.which("g++") is None, reason="needs namespaces and g++"
)
def test_hosts_that_are_far_apart():
    link = network.Link(megabits=100, milliseconds=20)
    with (
        network.hosts(2, link) as net,
        subprocess.Popen([*net.run_on(1), sys.executable, "-c", _ANSWER]) as other,
    ):
        ask = [*net.run_on(0), sys.executable, "-c", _ASK]
        said = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
        other.wait(10)
    times = [float(line) for line in said.split()]
    assert len(times) == 4 and min(times) >= 0.04
