"""The pods of an indexed Job of Kubernetes, as many as can be found by name at the moment.

    python -m tfhvd.launch.placement.kubernetes JOB DOMAIN COUNT

prints a line for each: this pod's own name, for ranks there need no ssh, and of each other one the
name that a headless Service gives it once it is ready, and takes from it when it is gone.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tfhvd.launch.errors import UsageError

_AT_ONCE = 16  # names that are looked up


def command(count: int, environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The words of a command that prints those that are there.

    Args:
        count: how many pods the Job has.
        environ: this pod's environment.
        name: this pod's name with its domain.

    Raises:
        UsageError: if this process is in no such pod.
    """
    index = environ.get("JOB_COMPLETION_INDEX")
    if index is None:
        raise UsageError(
            "--pods: this is no pod of an indexed Job of Kubernetes (JOB_COMPLETION_INDEX is not "
            "set). Name the hosts: -H host:slots,..."
        )
    host, _, domain = name.partition(".")
    if not domain or not host.endswith(f"-{index}"):
        raise UsageError(
            f"--pods: this pod has no name by which others of its Job can be told. Received: "
            f"{name!r}. Expected: JOB-{index}.SERVICE.... Make a headless Service, and let the "
            "Job's template have its name as subdomain: see examples/kubernetes/elastic-job.yaml"
        )
    job = host.removesuffix(f"-{index}")
    return (sys.executable, "-m", "tfhvd.launch.placement.kubernetes", job, domain, str(count))


def main(words: Sequence[str]) -> int:
    """Prints the pods."""
    job, domain, count = words[0], words[1], int(words[2])
    names = [f"{job}-{index}.{domain}" for index in range(count)]
    own = socket.gethostname()
    with ThreadPoolExecutor(_AT_ONCE) as lookups:
        for name, is_there in zip(names, lookups.map(_is_there, names)):
            if name.partition(".")[0] == own:
                print(own)
            elif is_there:
                print(name)
    return 0


def _is_there(name: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(socket.getaddrinfo(name, None))
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
