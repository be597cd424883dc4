"""The settings of hang detection from the environment: when to report a hang, or end the job."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping


def stall_limit(env: Mapping[str, str]) -> float:
    """Returns the seconds after which ranks stop waiting for a stalled rank; 0: never."""
    for name in ("TFHVD_STALL_SHUTDOWN_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"):
        if env.get(name):
            with contextlib.suppress(ValueError):  # the ranks report a wrong value
                return float(env[name])
            return 0.0
    return 0.0


def hang_limit(env: Mapping[str, str]) -> float:
    """Returns the seconds without progress after which a hang is reported; 0: never."""
    for name in ("TFHVD_STALL_CHECK_DISABLE", "HOROVOD_STALL_CHECK_DISABLE"):
        if env.get(name, "0").lower() not in ("", "0", "false", "off", "no"):
            return 0.0
    for name in ("TFHVD_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_CHECK_TIME_SECONDS"):
        if env.get(name):
            with contextlib.suppress(ValueError):  # the ranks report a wrong value
                return max(0.0, float(env[name]))
            return 0.0
    return 60.0


def ends_hanging(env: Mapping[str, str]) -> bool:
    """Returns whether to end a job that hangs. The ranks refuse other values of the setting."""
    return env.get("TFHVD_ON_HANG", "").lower() == "abort"
