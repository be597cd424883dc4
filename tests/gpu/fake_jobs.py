"""The jobs of test_tensorflow_on_a_fake_gpu.py, as their ranks begin them: before TensorFlow."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mpi

# The parts of a job of each size, in their order; each rank prints what it has passed.
EVERY_SIZE = (
    "collectives",
    "backward pass",
    "equivalence",
    "training",
    "mismatches",
    "asynchronous error",
)
PARTS = {
    1: EVERY_SIZE,
    2: (*EVERY_SIZE, "without NCCL", "without our kernel", "killed peer"),
    4: ("jobs side by side", *EVERY_SIZE, "killed peer"),
}


def everything() -> None:
    """All parts of a job of this size."""
    _outlive()
    import on_fakes

    on_fakes.run(PARTS[_launchers("SIZE")])


def one_gpu() -> None:
    """Two ranks on the same GPU."""
    import on_fakes

    on_fakes.share_a_gpu()


def number() -> int:
    """This process' number among those of the launcher's."""
    return _launchers("RANK")


def heard(rank: int) -> Path:
    """What a rank makes when it has heard of the killed one."""
    return Path(os.environ["TFHVD_TEST_OUTPUT"]) / f"heard.{rank}"


def wait_for_all_but_the_last() -> None:
    """Waits until every rank but the last has heard."""
    ranks = range(_launchers("SIZE") - 1)
    mpi.wait_for(lambda: all(heard(rank).exists() for rank in ranks))


def _launchers(what: str) -> int:
    """RANK or SIZE, as the launcher says, before anybody has met."""
    return int(os.environ.get(f"OMPI_COMM_WORLD_{what}") or os.environ[f"PMI_{what}"])


def _outlive() -> None:
    """Goes on in a child: the launcher does not see a rank that is killed, nor end the others."""
    child = os.fork()
    if child == 0:
        return
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL:
        print("killed, as was meant", flush=True)
        wait_for_all_but_the_last()
        code = 0
    os._exit(code if code >= 0 else 128 - code)
