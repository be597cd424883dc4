"""What the kernel says of a process and its machine: cores, memory, limits, network."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import ipaddress
import os
import resource
import shutil
import socket
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tfhvd.system import cgroups
from tfhvd.system import cpu_affinity as launch_cores

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B
_NO_LIMIT = 1 << 60  # bytes; version 1 of cgroups writes nearly 2 ** 63 if there is none
_OF_CHECKPOINTS, _OF_TEMPORARY = 1 << 30, 100 << 20  # bytes: less room than that is little
_NETWORK = Path("/sys/class/net")


@dataclasses.dataclass(frozen=True)
class Cores:
    """The cores of a process.

    Attributes:
        allowed: the numbers of those that it may run on.
        online: how many its machine has.
        quota: how many its container may keep busy; None if there is no limit.
        threads: what the variables for libraries say, those that are set.
        load: the load average of the machine's last minute.
    """

    allowed: tuple[int, ...] = ()
    online: int = 0
    quota: float | None = None
    threads: Mapping[str, str] = dataclasses.field(default_factory=dict)
    load: float = 0.0


@dataclasses.dataclass(frozen=True)
class Memory:
    """The memory of a machine, in bytes.

    Attributes:
        total: of the machine; 0 if it is not known, as below.
        available: without swapping.
        limit: of the container; None if there is none.
        shm_size: of /dev/shm.
        shm_free: of that.
    """

    total: int = 0
    available: int = 0
    limit: int | None = None
    shm_size: int = 0
    shm_free: int = 0


@dataclasses.dataclass(frozen=True)
class Room:
    """A folder that a process writes to; sizes in bytes.

    Attributes:
        path: its path.
        use: what is written there.
        total: of its file system.
        free: of that, for this user.
        least: with less than that a job may fail.
        writable: whether this process may write there.
    """

    path: str = ""
    use: str = ""
    total: int = 0
    free: int = 0
    least: int = 0
    writable: bool = True


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a process (`ulimit`); None: unlimited.

    Attributes:
        memlock: bytes that it may lock into memory.
        open_files: at once.
        open_files_hard: to which it may raise them itself.
        file_size: bytes of a file that it writes.
        processes: of its user.
    """

    memlock: int | None = None
    open_files: int | None = None
    open_files_hard: int | None = None
    file_size: int | None = None
    processes: int | None = None


@dataclasses.dataclass(frozen=True)
class Interface:
    """An address of an interface of the network.

    Attributes:
        name: as in "eth0".
        address: of IPv4 or IPv6.
        network: as in "10.0.0.0/24".
        mtu: bytes of the largest packet; 0 if it is not known.
        megabits: that the card says it carries in a second; 0 if it does not say.
    """

    name: str = ""
    address: str = ""
    network: str = ""
    mtu: int = 0
    megabits: int = 0


def host_name() -> str:
    """Returns the name that the machine gives itself."""
    return socket.gethostname()


def machine_id() -> str:
    """Returns a text that processes of one host share, as the ranks of a job find it out."""
    return f"{socket.gethostname()} {_read('/proc/sys/kernel/random/boot_id')}"


def cores(environ: Mapping[str, str]) -> Cores:
    """Returns the cores of this process."""
    return Cores(
        tuple(sorted(os.sched_getaffinity(0))),
        os.cpu_count() or 0,
        launch_cores.quota(),
        {name: environ[name] for name in launch_cores.VARIABLES if environ.get(name)},
        os.getloadavg()[0],
    )


def memory() -> Memory:
    """Returns the memory of this machine and container."""
    lines = (line.split() for line in _read("/proc/meminfo").splitlines())
    kilobytes = {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1}
    shm_size = shm_free = 0
    with contextlib.suppress(OSError):
        shm_size, _, shm_free = shutil.disk_usage("/dev/shm")
    return Memory(
        1024 * kilobytes.get("MemTotal", 0),
        1024 * kilobytes.get("MemAvailable", 0),
        _memory_limit(),
        shm_size,
        shm_free,
    )


def _memory_limit() -> int | None:
    groups = _read("/proc/self/cgroup")
    found = []
    for files in cgroups.files_of(groups, cgroups.MEMORY_LIMIT):
        text = _read(files[0])
        if text.isdigit() and int(text) < _NO_LIMIT:
            found.append(int(text))
    return min(found, default=None)


def rooms() -> tuple[Room, ...]:
    """Returns the folders that this process writes to: its own, and that of temporary files."""
    found = []
    uses = (("checkpoints and logs", _OF_CHECKPOINTS), ("temporary files", _OF_TEMPORARY))
    for find, (use, least) in zip((os.getcwd, tempfile.gettempdir), uses):
        with contextlib.suppress(OSError):  # a folder that is gone, or none that it may write to
            path = find()
            total, _, free = shutil.disk_usage(path)
            found.append(Room(path, use, total, free, least, os.access(path, os.W_OK)))
    return tuple(found)


def limits() -> Limits:
    """Returns the limits of this process."""
    files, files_hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(
        memlock=_limit(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        open_files=_limit(files),
        open_files_hard=_limit(files_hard),
        file_size=_limit(resource.getrlimit(resource.RLIMIT_FSIZE)[0]),
        processes=_limit(resource.getrlimit(resource.RLIMIT_NPROC)[0]),
    )


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def interfaces() -> tuple[Interface, ...]:
    """Returns the addresses by which other machines may reach this one: of what is up."""
    found = []
    for _, name in socket.if_nameindex():
        if name == "lo" or _read(_NETWORK / name / "operstate") not in ("up", "unknown", ""):
            continue
        about = (_number(_NETWORK / name / "mtu"), _number(_NETWORK / name / "speed"))
        for address, prefix in (*_ipv4(name), *_ipv6(name)):
            network = ipaddress.ip_network(f"{address}/{prefix}", strict=False)
            found.append(Interface(name, address, str(network), *about))
    return tuple(found)


def _ipv4(name: str) -> list[tuple[str, str]]:
    """The address of an interface and its mask, if it has one."""
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            both = [
                socket.inet_ntoa(fcntl.ioctl(probe, code, request)[20:24])
                for code in (_SIOCGIFADDR, _SIOCGIFNETMASK)
            ]
        except OSError:
            return []
    return [(both[0], both[1])]


def _ipv6(name: str) -> list[tuple[str, str]]:
    """The addresses of an interface that mean the same on other machines, each with its prefix."""
    found = []
    for line in _read("/proc/net/if_inet6").splitlines():
        digits, _, prefix, scope, _, interface = line.split()
        if interface == name and int(scope, 16) == 0:
            address = ipaddress.IPv6Address(bytes.fromhex(digits))
            found.append((str(address), str(int(prefix, 16))))
    return found


def infiniband() -> tuple[str, ...]:
    """Returns the names of the InfiniBand (or RoCE) adapters."""
    try:
        return tuple(sorted(path.name for path in Path("/sys/class/infiniband").iterdir()))
    except OSError:
        return ()


def _number(path: Path) -> int:
    """A number in a file; 0 if there is none: a card without a cable says -1, or nothing."""
    text = _read(path)
    return int(text) if text.isdigit() else 0


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
