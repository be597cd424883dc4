"""Hosts with a network between them, on one machine: Linux namespaces, which root may make.

    with network.hosts(3) as net:
        net.run_on(0)    # words of a command that runs the one behind them on the first host
        net.launcher(2)  # mpirun's options for two ranks on each host
        net.tfhvdrun(2)  # tfhvdrun's
        net.cut_off(2)   # nothing reaches the third host, and nothing leaves it
    net.daemon()     # for commands on other hosts that outlive the host they are given from

Each host has its own addresses, name, processes, /dev/shm and folder for temporary files.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# A host without a name: what the host does not share with the others, then the command.
_ON_HOST = """#!/bin/bash
while [ "${1#-}" != "$1" ]; do shift; done  # options of ssh
host=$1
shift
own=(--uts --mount --ipc --pid --fork --kill-child --mount-proc)
groups=${0%/*}/groups
# ip netns mounts /sys anew, without the control groups of this machine.
exec unshare --mount bash -c 'mount --rbind /sys/fs/cgroup "$0" 2>/dev/null; exec "$@"' "$groups" \
  ip netns exec "$host" unshare "${own[@]}" bash -c '
  hostname "$0"
  mount --rbind "$2" /sys/fs/cgroup 2>/dev/null
  mount -t tmpfs none /dev/shm
  mkdir /dev/shm/tmp
  export TMPDIR=/dev/shm/tmp
  eval "$1"' "$host" "$*" "$groups"
"""

# Has a daemon run its words, with its own files.
_ASKS_DAEMON = """#!{python} -ES
import json, socket, sys
asks = socket.socket(socket.AF_UNIX)
asks.connect("{folder}/socket")
socket.send_fds(asks, [json.dumps(sys.argv[1:]).encode()], [0, 1, 2])
sys.exit(int(asks.recv(16) or 255))
"""
_FILES = ("stdin", "stdout", "stderr")


@functools.cache
def available() -> bool:
    """Whether this process may make namespaces, and has the tools for it."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "mount"))):
        return False
    name = f"tfhvd-{uuid.uuid4().hex[:6]}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    try:
        made = subprocess.run(
            ["ip", "-n", name, "link", "add", "type", "bridge"], capture_output=True
        )
        return made.returncode == 0
    finally:
        _ip("netns", "del", name)


@dataclass(frozen=True)
class Link:
    """Between a host and the switch: its packets are of up to 9000 bytes.

    Attributes:
        megabits: that it carries in a second, each way.
        milliseconds: that a packet takes from host to host; of all hosts the same.
        receives: megabits, where the host receives at another speed than it sends.
        largest: bytes of a packet; larger ones are lost, without a word to who has sent them, as
            where something on the way has smaller packets. Of all hosts the same.
    """

    megabits: float
    milliseconds: float = 0.0
    receives: float | None = None
    largest: int = 9000


class Network:
    """Hosts on one bridge.

    Args:
        agent: the path of a command like ssh's.
        names: of the hosts.
    """

    def __init__(self, agent: Path, names: list[str]) -> None:
        self._agent = agent
        self._names = names

    @property
    def names(self) -> list[str]:
        """The hosts' names, by which they reach each other."""
        return list(self._names)

    @property
    def agent(self) -> Path:
        """A program that is called as ssh is."""
        return self._agent

    def run_on(self, host: int) -> list[str]:
        """Words before a command's own, which run it on a host."""
        # The shell of the agent reads its arguments again, as that of ssh does.
        text = 'host=$1; shift; printf -v words "%q " "$@"; exec "$0" "$host" "exec $words"'
        return ["bash", "-c", text, str(self._agent), self._names[host]]

    def launcher(self, ranks_per_host: int) -> list[str]:
        """Open MPI's options: ranks on every host, over this network alone."""
        hosts = ",".join(f"{name}:{ranks_per_host}" for name in self._names)
        settings = {"plm_ssh_agent": str(self._agent), "prte_if_include": "net0"}
        return [
            *(word for name, value in settings.items() for word in ("--prtemca", name, value)),
            *("--mca", "btl_tcp_if_include", "net0", "--host", hosts),
        ]

    def tfhvdrun(self, ranks_per_host: int) -> list[str]:
        """The same of tfhvdrun."""
        hosts = ",".join(f"{name}:{ranks_per_host}" for name in self._names)
        words = ["--network-interfaces", "net0", "--remote-shell", str(self._agent)]
        return [*words, "-H", hosts]

    @contextlib.contextmanager
    def daemon(self) -> Iterator[Network]:
        """The same hosts, whose agent has others do the work, as ssh has sshd.

        What it starts is no child of who calls it, and goes on where that one is killed.
        """
        with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as listener:
            folder = Path(name)
            listener.bind(str(folder / "socket"))
            listener.listen()
            agent = folder / "on"
            agent.write_text(_ASKS_DAEMON.format(python=sys.executable, folder=folder))
            agent.chmod(0o755)
            threading.Thread(target=self._answer, args=(listener,), daemon=True).start()
            yield Network(agent, self._names)
            listener.shutdown(socket.SHUT_RDWR)

    def _answer(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                asks, _ = listener.accept()
                threading.Thread(target=self._run_for, args=(asks,), daemon=True).start()

    def _run_for(self, asks: socket.socket) -> None:
        with asks, contextlib.suppress(BrokenPipeError):
            words, files, _, _ = socket.recv_fds(asks, 1 << 20, 3)
            process = subprocess.Popen(
                [self._agent, *json.loads(words)], **dict(zip(_FILES, files))
            )
            for file in files:
                os.close(file)
            asks.sendall(str(process.wait()).encode())

    def add_bridge(self, host: str, name: str, address: str) -> None:
        """Makes an interface that leads nowhere, as Docker does on each host."""
        _ip("-n", host, "link", "add", name, "type", "bridge")
        _ip("-n", host, "addr", "add", address, "dev", name)
        _ip("-n", host, "link", "set", name, "up")

    def pids(self, host: int) -> list[int]:
        """The processes that run on a host, as this process sees them."""
        return pids_on(self._names[host])

    def kill_all(self, host: int) -> None:
        """Kills (SIGKILL) all that runs on a host."""
        _kill_all_on(self._names[host])

    def cut_off(self, host: int) -> None:
        """Loses what goes to a host or comes from it, from now on, without a word to anybody."""
        _ip("-n", self._names[host], "link", "set", "net0", "down")


@contextlib.contextmanager
def hosts(
    count: int, link: Link | None = None, unlike: Mapping[int, Link] | None = None
) -> Iterator[Network]:
    """Makes hosts; removes them, with all that runs on them.

    Args:
        count: how many.
        link: of each host; needs g++. None: as fast as this machine's cores.
        unlike: by host, the links of those that have others.
    """
    mark = uuid.uuid4().hex[:6]
    switch = f"tfhvd-{mark}"
    names = [f"{switch}-{number}" for number in range(count)]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        agent = folder / "on"
        agent.write_text(_ON_HOST)
        agent.chmod(0o755)
        (folder / "groups").mkdir()
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_remove, name)
        if link is None:
            # The bridge has a namespace too, so that nothing is left outside.
            _ip("netns", "add", switch)
            stack.callback(_remove, switch)
            _connect_by_bridge(switch, names)
        else:
            links = [(unlike or {}).get(number, link) for number in range(count)]
            stack.enter_context(_connect_by_links(names, folder, links))
        for number, name in enumerate(names):
            _ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "net0")
            _ip("-n", name, "link", "set", "net0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _use_cubic(name)
            etc = Path("/etc/netns") / name  # what the host has for /etc/hosts
            etc.mkdir(parents=True)
            stack.callback(shutil.rmtree, etc)
            lines = [f"10.77.0.{i + 1} {other}" for i, other in enumerate(names)]
            (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        yield Network(agent, names)


def _connect_by_bridge(switch: str, names: list[str]) -> None:
    """Makes each host's net0, an end of a cable to a bridge in the namespace `switch`."""
    _ip("-n", switch, "link", "add", "net", "type", "bridge")
    _ip("-n", switch, "link", "set", "net", "up")
    for number, name in enumerate(names):
        end = ("type", "veth", "peer", "name", "net0", "netns", name)
        _ip("-n", switch, "link", "add", f"port{number}", *end)
        _ip("-n", switch, "link", "set", f"port{number}", "master", "net", "up")


@contextlib.contextmanager
def _connect_by_links(names: list[str], folder: Path, links: list[Link]) -> Iterator[None]:
    """Makes each host's net0, a device of a program that keeps packets for a while."""
    program = folder / "network_switch"
    source = Path(__file__).with_name("network_switch.cc")
    subprocess.run(["g++", "-std=c++17", "-O2", "-o", program, source], check=True)
    words = [program, str(1000 * links[0].milliseconds), str(links[0].largest)]
    for name, link in zip(names, links):
        words.append(f"{name}:{link.megabits}:{link.receives or link.megabits}")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise OSError(f"{source.name} ended with {process.wait()}")
            for name in names:
                _ip("-n", name, "link", "set", "net0", "mtu", "9000", "txqueuelen", "500")
            yield
        finally:
            process.kill()


def _use_cubic(name: str) -> None:
    """Gives a host's connections Linux's usual congestion control, where this machine has it.

    BBR, which machines may have chosen, spreads what a step sends over half a round trip, since a
    step seldom fills a link. The route says it: only the machine itself may choose for all.
    """
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text()
    if "cubic" in available.split():
        _ip("-n", name, "route", "change", "10.77.0.0/24", "dev", "net0", "congctl", "cubic")


def _remove(name: str) -> None:
    _kill_all_on(name)
    _ip("netns", "del", name)


def _kill_all_on(name: str) -> None:
    if pids := pids_on(name):
        subprocess.run(["kill", "-KILL", *map(str, pids)], capture_output=True)


def pids_on(name: str) -> list[int]:
    """The processes that run in a network namespace, as this process sees them."""
    words = ["ip", "netns", "pids", name]
    found = subprocess.run(words, capture_output=True, text=True).stdout.split()
    return list(map(int, found))


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {shlex.join(words)}: {done.stderr.strip()}")
