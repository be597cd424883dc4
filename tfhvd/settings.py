"""The settings that tfhvd reads from the environment."""

from __future__ import annotations

import dataclasses

from tfhvd.runtime.native import load_native


@dataclasses.dataclass(frozen=True)
class Setting:
    """One row of the table of settings.

    Attributes:
        name: the environment variable.
        horovod_name: Horovod's variable, which works, too; None if there is none.
        default: the value if neither variable is set.
        range: the allowed values, with their unit.
        meaning: one sentence.
    """

    name: str
    horovod_name: str | None
    default: str
    range: str
    meaning: str


def settings() -> tuple[Setting, ...]:
    """Returns every setting.

    Example:
        >>> [setting.name for setting in settings()][:2]
        ['TFHVD_FUSION_THRESHOLD', 'TFHVD_CYCLE_TIME']
    """
    return tuple(
        Setting(f"TFHVD_{row.name}", row.horovod_name, row.default_text, row.range, row.meaning)
        for row in load_native().settings()
    )


def markdown() -> str:
    """Returns the table of settings in the documentation.

    Example:
        >>> print(markdown())
    """
    rows = ["| setting | Horovod's name | default | values | meaning |", "|---|---|---|---|---|"]
    for s in settings():
        horovod = f"`{s.horovod_name}`" if s.horovod_name else ""
        rows.append(f"| `{s.name}` | {horovod} | {s.default} | {s.range} | {s.meaning} |")
    return "\n".join(rows) + "\n"


PAGE = """\
# Settings

`hvd.init()` reads these from the environment. If both names are set, tfhvd's counts. A value out of
range is an error. A name that begins with `TFHVD_` but is not a setting is reported, with the
nearest real one. For settings that must be equal on all ranks, rank 0's value counts.

This page is printed by `python -m tfhvd.settings`.

"""

if __name__ == "__main__":
    print(PAGE + markdown(), end="")
