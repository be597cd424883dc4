"""Do the clocks of the hosts agree? Files, logs and timelines of a job are compared by them."""

from __future__ import annotations

from tfhvd.tools.doctor.finding import Finding, passed, warned
from tfhvd.tools.doctor.survey import Survey

_MOST = 1.0  # seconds


def check(survey: Survey) -> list[Finding]:
    """Compares all of them."""
    clocks = sorted(survey.clocks, key=lambda clock: clock.ahead)
    if len(clocks) < 2:
        return [passed("clocks", "one host, one clock")]
    apart = clocks[-1].ahead - clocks[0].ahead
    error = clocks[-1].error + clocks[0].error
    details = [f"host {c.host}: {c.ahead:+.6f} s, ± {c.error:.6f} s" for c in clocks]
    text = (
        f"the clocks of hosts {clocks[0].host} and {clocks[-1].host} are {_seconds(apart)} apart "
        f"(± {_seconds(error)})"
    )
    if apart - error < _MOST:
        return [passed("clocks", f"at most {_seconds(apart + error)} apart", details)]
    middle = clocks[len(clocks) // 2].ahead
    wrong = max((clocks[0], clocks[-1]), key=lambda clock: abs(clock.ahead - middle))
    fix = f"on host {wrong.host}: timedatectl set-ntp true (or: chronyc makestep)"
    return [warned("clocks", text, fix, details)]


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.2f} ms"
