"""A root directory of one's own over this machine's: nothing that is done in it stays.

What is installed, written, mounted and started there is seen by nobody else, and is gone when the
program has ended, however it ends. Needs root, and a kernel with overlayfs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import commands

DISK = Path("/mnt")  # within; what is written elsewhere takes memory

_MARK = "TFHVD_PRIVATE_ROOT"  # the folder for it, in the environment of the program within


def enter(hostname: str = "") -> None:
    """Runs this program again in such a root, and exits with its exit code; within, goes on.

    Args:
        hostname: the machine's name within.
    """
    if _MARK in os.environ:
        _change(Path(os.environ.pop(_MARK)), hostname)
        return
    if os.geteuid() != 0:
        sys.exit("a root directory of one's own needs root")
    # So that SIGTERM ends what runs within, too, and the folder goes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    own = ["--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
    with tempfile.TemporaryDirectory(prefix="tfhvd-root-") as folder:
        words = ["unshare", *own, sys.executable, *sys.argv]
        ran = subprocess.run(words, env={**os.environ, _MARK: folder}, check=False)
    sys.exit(ran.returncode)


def _change(folder: Path, hostname: str) -> None:
    here = Path.cwd()
    disk, memory = folder / "disk", folder / "memory"
    disk.mkdir()
    memory.mkdir()
    _run("mount", "-t", "tmpfs", "tmpfs", str(memory))
    for name in ("upper", "work", "root"):
        (memory / name).mkdir()
    layers = f"lowerdir=/,upperdir={memory}/upper,workdir={memory}/work"
    root = memory / "root"
    _run("mount", "-t", "overlay", "overlay", "-o", layers, str(root))
    _run("mount", "--rbind", "/dev", str(root / "dev"))
    _run("mount", "--rbind", "/sys", str(root / "sys"))
    _run("mount", "-t", "proc", "proc", str(root / "proc"))
    _run("mount", "-t", "tmpfs", "tmpfs", str(root / "dev/shm"))
    _run("mount", "--bind", str(disk), str(root / DISK.relative_to("/")))
    os.environ["TMPDIR"] = str(DISK)
    if hostname:
        _run("hostname", hostname)
    os.chroot(root)
    os.chdir(here)


def apt_install(*packages: str) -> None:
    """Installs packages of Debian without starting what they bring.

    Raises:
        subprocess.CalledProcessError: if that fails; what was printed is shown.
    """
    policy = Path("/usr/sbin/policy-rc.d")
    policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    policy.chmod(0o755)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        ran = commands.run(["apt-get", "-qq", *words], env)
        if ran.returncode != 0:
            print(ran.stdout, flush=True)
        ran.check_returncode()


def _run(*words: str) -> None:
    subprocess.run(words, check=True)
