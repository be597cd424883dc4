"""The pods of an indexed Kubernetes Job that have a name now.

    python -m tfhvd.launch.placement.kubernetes JOB DOMAIN COUNT

prints a line for each: for this pod its host name, so that ranks here need no ssh; for each other
pod the name from a headless Service, which a pod has from when it is ready until it ends.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tfhvd.launch.errors import UsageError

_AT_ONCE = 16  # the number of names to look up at a time


def command(count: int, environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Returns a command that prints the present pods.

    Args:
        count: how many pods the Job has.
        environ: this pod's environment.
        name: this pod's name with its domain.

    Raises:
        UsageError: if this process is not in a pod of an indexed Job.
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
