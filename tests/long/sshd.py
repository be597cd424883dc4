"""Starts jobs on another host through a real sshd: keys, users, hosts that fail, and the end.

    sudo --preserve-env python tests/long/sshd.py [--only TEXT]

The server is Debian's, installed in a root directory of its own over this machine's
(private_root.py). The other host is this machine under another name, with a network, a /dev/shm and
a /tmp of its own. Needs root, and access to Debian's packages. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import commands
import private_root

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import children
import network

HERE, THERE, CLOSED = "here", "there", "closed"
PORT, LINK = 2222, "tfhvd-sshd"
KEY = private_root.DISK / "key"
LIMIT = 180  # seconds for a command
# Addresses that are nobody's, of the two hosts; by another one nobody listens.
HERE_AT, THERE_AT, CLOSED_AT = "198.51.100.1", "198.51.100.2", "198.51.100.3"
LAUNCH = (sys.executable, "-m", "tfhvd.launch")

# Runs sshd as on a host of its own.
HOST = """
hostname "$0"
mount -t tmpfs none /dev/shm
mount -t tmpfs none /tmp
exec /usr/sbin/sshd -D -e "$@"
"""

TRAIN = """
import os, socket

import tensorflow as tf
import tfhvd as hvd

hvd.init()
total = hvd.allreduce(tf.constant(1.0), op=hvd.Sum)
place, colour = socket.gethostname(), os.environ.get("COLOUR")
print(f"rank {hvd.rank()} of {hvd.size()} on {place}: {total:.0f} {colour}\\n", end="")
"""

FAILS = """
import sys

import tfhvd as hvd

hvd.init()
if hvd.rank() == 1:
    sys.exit(3)
hvd.barrier()
"""

WAITS = """
import os, time

import tfhvd as hvd

hvd.init()
print(f"process {os.getpid()}\\n", end="", flush=True)
time.sleep(600)
"""


# Until the folder that is given has a file: notes which ranks make the steps.
STEPS = """
import sys, time
from pathlib import Path

import tensorflow as tf
import tfhvd as hvd

hvd.init()
folder, number, total, ends = Path(sys.argv[1]), hvd.rank(), 0.0, False
while not ends:
    total = float(hvd.allreduce(2.0**number, op=hvd.Sum, name="total"))
    (folder / f"{number}.sum").write_text(f"{total:g}")
    ends = hvd.allreduce(float((folder / "end").exists()), op=hvd.Max, name="ends") > 0
    time.sleep(0.01)
print(f"rank {hvd.rank()} of {hvd.size()}: {total:g}\\n", end="", flush=True)
"""


@contextlib.contextmanager
def server() -> Iterator[None]:
    """Installs sshd and starts it; it ends with the private root."""
    private_root.apt_install("openssh-server", "openssh-client")
    with Path("/etc/hosts").open("a", encoding="utf-8") as hosts:
        hosts.write(f"\n{HERE_AT} {HERE}\n{THERE_AT} {THERE}\n{CLOSED_AT} {CLOSED}\n")
    ssh = Path.home() / ".ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    for path in (KEY, private_root.DISK / "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    (ssh / "authorized_keys").write_bytes(KEY.with_suffix(".pub").read_bytes())
    known = (private_root.DISK / "host_key.pub").read_text(encoding="utf-8")
    (ssh / "known_hosts").write_text(
        "".join(f"[{name}]:{PORT} {known}" for name in (THERE, CLOSED)), encoding="utf-8"
    )
    words = ["-f", "/dev/null", "-p", str(PORT), "-h", str(private_root.DISK / "host_key")]
    words += ["-o", f"ListenAddress={THERE_AT}", "-o", "PermitRootLogin=prohibit-password"]
    own = ["ip", "netns", "exec", THERE, "unshare", "--uts", "--ipc", "--mount"]
    own += ["bash", "-ec", HOST, THERE]
    connect()
    with (private_root.DISK / "sshd.log").open("wb") as log:
        daemon = subprocess.Popen([*own, *words], stdin=subprocess.DEVNULL, stderr=log)
    try:
        wait_for(lambda: listens(THERE_AT), "sshd")
        yield
    finally:
        daemon.kill()
        daemon.wait()


def connect() -> None:
    """Gives the other host a network, with a link to this one, that ends with its processes."""
    on_there = ("-n", THERE)
    for words in (
        ("netns", "add", THERE),
        ("link", "add", LINK, "type", "veth", "peer", "name", "net0", "netns", THERE),
        ("address", "add", f"{HERE_AT}/24", "dev", LINK),
        (*on_there, "address", "add", f"{THERE_AT}/24", "dev", "net0"),
        (*on_there, "address", "add", f"{CLOSED_AT}/24", "dev", "net0"),
        ("link", "set", LINK, "up"),
        (*on_there, "link", "set", "net0", "up"),
        (*on_there, "link", "set", "lo", "up"),
    ):
        subprocess.run(["ip", *words], check=True)


def listens(address: str) -> bool:
    asked = ["ssh-keyscan", "-T", "2", "-p", str(PORT), address]
    return bool(subprocess.run(asked, capture_output=True, check=False).stdout)


def wait_for(happened: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until, f"{what} did not come in time"
        time.sleep(0.2)


def program(text: str) -> str:
    path = private_root.DISK / "program.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def launch(options: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
    """Starts a job, with the key and the port."""
    words = [*LAUNCH, "-p", str(PORT), "-i", str(KEY), *options, sys.executable, program(text)]
    return commands.run(words, {**os.environ, "COLOUR": "light blue"}, LIMIT)


def trains(hosts: str) -> None:
    """The ranks are where they should be, and the launcher's environment reaches them."""
    ran = launch(["-H", hosts], TRAIN)
    found = sorted(re.findall(r"rank \d of \d on .*", ran.stdout))
    places = [HERE] * 2 + [THERE] * 2
    expected = [f"rank {n} of 4 on {place}: 4 light blue" for n, place in enumerate(places)]
    assert (ran.returncode, found) == (0, expected), ran.stdout


def a_host_without_a_server() -> None:
    began = time.monotonic()
    ran = launch(["-H", f"{HERE}:1,{CLOSED}:1"], TRAIN)
    took = time.monotonic() - began
    assert ran.returncode != 0 and took < 10, f"after {took:.1f} s:\n{ran.stdout}"
    lines = [line for line in ran.stdout.splitlines() if CLOSED in line]
    assert len(lines) == 1 and "Connection refused" in lines[0], ran.stdout


def a_key_that_the_host_does_not_know() -> None:
    other = private_root.DISK / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    ran = launch(["-i", str(other), "-H", f"{HERE}:1,{THERE}:1"], TRAIN)
    lines = [line for line in ran.stdout.splitlines() if THERE in line]
    assert ran.returncode != 0 and any("Permission denied" in line for line in lines), ran.stdout


def a_rank_there_fails() -> None:
    ran = launch(["-H", f"{HERE}:1,{THERE}:1"], FAILS)
    says = f"tfhvdrun: rank 1 on host {THERE} failed first: exit code 3"
    assert ran.returncode == 3 and says in ran.stdout, f"{ran.returncode}:\n{ran.stdout}"


def ctrl_c() -> None:
    """Nothing of the job outlives it, here and there."""
    words = [*LAUNCH, "-p", str(PORT), "-i", str(KEY), "-H", f"{HERE}:1,{THERE}:1"]
    output = private_root.DISK / "waits.log"
    with output.open("wb") as log:
        job = subprocess.Popen(
            [*words, sys.executable, program(WAITS)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: output.read_text().count("process") == 2, "the ranks")
        job.send_signal(signal.SIGINT)
        job.wait(timeout=60)
    finally:
        job.kill()
        job.wait()
    # The other host shares this one's numbers of processes.
    numbers = re.findall(r"process (\d+)", output.read_text())
    alive = [number for number in numbers if Path("/proc", number).exists()]
    assert not alive, f"alive: {alive}\n{output.read_text()}"
    assert job.returncode == 130, f"{job.returncode}\n{output.read_text()}"


def the_host_of_tfhvdrun_is_lost() -> None:
    """All its processes are killed, the ssh among them; those of the other host go on."""
    folder = private_root.DISK / "majority"
    folder.mkdir()
    words = [*LAUNCH, "--majority", "-p", str(PORT), "-i", str(KEY), "-H", f"{HERE}:1,{THERE}:2"]
    with (folder / "first.log").open("wb") as log:
        job = subprocess.Popen(
            [*words, sys.executable, program(STEPS), str(folder)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    sums = [folder / f"{number}.sum" for number in range(3)]

    def trains(ranks: Sequence[int]) -> Callable[[], bool]:
        total = f"{sum(2**rank for rank in ranks)}"
        return lambda: all(sums[n].exists() and sums[n].read_text() == total for n in ranks)

    def written() -> str:
        return "".join(path.read_text() for path in folder.glob("tfhvdrun-*.log"))

    try:
        wait_for(trains([0, 1, 2]), "three ranks")
        time.sleep(3)  # for what an heir needs to be sent
        for pid in [*descendants(job.pid), job.pid]:
            os.kill(pid, signal.SIGKILL)
        job.wait()
        wait_for(trains([1, 2]), "the two that are left")
        (folder / "end").touch()
        wait_for(lambda: written().count(" of 2: 6") == 2, "their end")
        wait_for(lambda: not there(), "the end of all that was started there")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{(folder / 'first.log').read_text()}{written()}") from None
    finally:
        job.kill()
        job.wait()
    assert "now supervises the job" in written(), written()


def there() -> list[str]:
    """What Python runs on the other host."""
    found = []
    for pid in network.pids_on(THERE):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"))
    return [words for words in found if "python" in words]


def descendants(pid: int) -> list[int]:
    below = children.of(pid)
    return [*below, *(deeper for child in below for deeper in descendants(child))]


CASES: dict[str, Callable[[], None]] = {
    "two hosts": lambda: trains(f"{HERE}:2,{THERE}:2"),
    "user@host": lambda: trains(f"{HERE}:2,root@{THERE}:2"),
    "a host without a server": a_host_without_a_server,
    "a key that the host does not know": a_key_that_the_host_does_not_know,
    "a rank on the other host fails": a_rank_there_fails,
    "Ctrl-C": ctrl_c,
    "the host of tfhvdrun is lost": the_host_of_tfhvdrun_is_lost,
}


def main() -> int:
    """Runs the cases one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text")
    options = parser.parse_args()
    private_root.enter(HERE)
    failed = []
    chosen = {name: case for name, case in CASES.items() if options.only in name}
    with server():
        version = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr
        print(f"{datetime.date.today()}: {version.strip()}", flush=True)
        for name, case in chosen.items():
            began = time.monotonic()
            try:
                case()
                print(f"{name}: passed in {time.monotonic() - began:.0f} s", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                failed.append(name)
                print(f"{name}: failed: {error}", flush=True)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
