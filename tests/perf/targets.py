"""What tfhvd must reach, and the verdict on figures. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

# Medians in seconds: workload -> column -> time. What is missing was not measured.
Figures = Mapping[str, Mapping[str, float]]

OURS, HOROVOD, MPI = "tfhvd", "Horovod", "MPI"
# TensorFlow's own share, and the same in the version that the rival needs.
ALONE = ("tf.identity", "plain tape", "plain optimizer")
RIVAL_ALONE = "alone beside Horovod"


@dataclasses.dataclass(frozen=True)
class Target:
    """The bounds of one workload on 2 ranks of one machine.

    Attributes:
        workload: as tfhvd.bench names it.
        milliseconds: at most, of tfhvd.
        above_identity: times count without TensorFlow's own share.
        horovod: tfhvd is at least so many times shorter than Horovod, 0 for no such bound.
        mpi: tfhvd takes at most this part of plain MPI's time, 0 for no such bound.
    """

    workload: str
    milliseconds: float
    above_identity: bool = False
    horovod: float = 0.0
    mpi: float = 0.0


TARGETS = (
    Target("1 x 4 B", 0.06, above_identity=True, horovod=14),
    Target("500 x 1 KiB", 1.2, above_identity=True, horovod=6),
    Target("500 x 1 KiB, tape", 1.2, above_identity=True, horovod=8),
    Target("resnet50", 38, horovod=2.2, mpi=0.7),
    Target("bert", 165, mpi=0.7),
    Target("1 x 64 MiB", 16, horovod=2.5, mpi=0.7),
)
FIT_SHARE = 0.88  # of the throughput of ranks that train alone
IDLE_SHARE = 0.01  # of a core


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One row of the table: `text` by column, and whether each bound is met."""

    cells: dict[str, str]
    met: bool


def alone_of(times: Mapping[str, float]) -> str:
    """The column of TensorFlow's own share."""
    return next(name for name in ALONE if name in times)


def judge(target: Target, times: Mapping[str, float]) -> Verdict:
    """Compares the medians of one workload, in seconds, with its bounds.

    Bounds on a rival that was not measured are left out, and shown as "-".
    """
    base = times[alone_of(times)] if target.above_identity else 0.0
    ours = 1e3 * (times[OURS] - base)
    checks = [ours <= target.milliseconds]
    cells = {
        "tfhvd": f"{ours:.3g} ms" + (" above identity" if target.above_identity else ""),
        "must reach": f"≤ {target.milliseconds:g} ms",
    }
    cells["Horovod / tfhvd"] = cells["tfhvd / MPI"] = "-"
    if HOROVOD in times and target.horovod:
        rival_base = times[RIVAL_ALONE] if target.above_identity else 0.0
        ratio = 1e3 * (times[HOROVOD] - rival_base) / ours
        cells["Horovod / tfhvd"] = f"{ratio:.2f} (≥ {target.horovod:g})"
        checks.append(ratio >= target.horovod)
    if MPI in times and target.mpi:
        ratio = ours / (1e3 * times[MPI])
        cells["tfhvd / MPI"] = f"{ratio:.2f} (≤ {target.mpi:g})"
        checks.append(ratio <= target.mpi)
    cells["met"] = _met(checks)
    return Verdict(cells, all(checks))


def judge_fit(alone: float, together: float) -> Verdict:
    """Compares the medians of a step of training, in seconds, alone and together."""
    share = alone / together
    cells = {
        "tfhvd": f"{share:.0%} of alone",
        "must reach": f"≥ {FIT_SHARE:.0%}",
        "met": _met([share >= FIT_SHARE]),
    }
    return Verdict(cells, share >= FIT_SHARE)


def judge_idle(share: float) -> Verdict:
    """Compares the share of a core that the busier of idle ranks uses."""
    met = share < IDLE_SHARE
    cells = {
        "tfhvd": f"{share:.2%} of a core",
        "must reach": f"< {IDLE_SHARE:.0%}",
        "met": _met([met]),
    }
    return Verdict(cells, met)


def _met(checks: list[bool]) -> str:
    if all(checks):
        return "yes"
    return "no" if not any(checks) else f"{sum(checks)} of {len(checks)}"
