"""The options of elastic jobs: ranks may fail, and others may join."""

from __future__ import annotations

from tfhvd.launch.options import converters
from tfhvd.launch.options.parser import Row, switch, value


def elastic_options() -> list[Row]:
    """Returns all options of elastic jobs."""
    return [*_how_many(), *_where(), *_when()]


def _how_many() -> list[Row]:
    return [
        switch(
            "--elastic",
            dest="elastic",
            help="Continue when ranks fail, without losing a step; uses no MPI.",
        ),
        value(
            *("--min-np", "--min-num-proc"),
            dest="min_np",
            metavar="N",
            convert=converters.whole(1),
            help="Smallest number of ranks to continue with (default 1). Implies --elastic.",
        ),
        value(
            *("--max-np", "--max-num-proc"),
            dest="max_np",
            metavar="N",
            convert=converters.whole(1),
            help="Start replacement and extra ranks on free slots, up to N ranks. Implies "
            "--elastic.",
        ),
    ]


def _where() -> list[Row]:
    return [
        value(
            "--host-discovery-script",
            dest="discovery",
            metavar="SCRIPT",
            convert=converters.script,
            help="Command that prints available hosts as host[:slots]; run every second. "
            "Implies --elastic.",
        ),
        value(
            "--pods",
            dest="pods",
            metavar="N",
            convert=converters.whole(1),
            help="Use the ready pods among the N of this Kubernetes indexed Job. Implies "
            "--elastic.",
        ),
        value(
            *("--slots-per-host", "--slots"),
            dest="slots_per_host",
            metavar="N",
            convert=converters.whole(1),
            help="Slots of a host or pod when discovery gives no number (default 1).",
        ),
        value(
            "--elastic-timeout",
            dest="elastic_timeout",
            metavar="S",
            convert=converters.number,
            help="Seconds to wait for hosts with --min-np slots before the job starts "
            "(default 600).",
        ),
    ]


def _when() -> list[Row]:
    return [
        value(
            "--reset-limit",
            dest="reset_limit",
            metavar="N",
            convert=converters.whole(1),
            help="Maximum number of membership changes (default: no limit).",
        ),
        value(
            "--blacklist-cooldown-range",
            dest="pauses",
            metavar=("MIN", "MAX"),
            nargs=2,
            convert=converters.pauses,
            help="Seconds before a failed host is tried again; doubles from MIN to MAX "
            "(default 1 600).",
        ),
        value(
            "--evict-after",
            dest="evict_after",
            metavar="S",
            convert=converters.number,
            help="Kill ranks that block the others for S seconds without progress (default: wait).",
        ),
        switch(
            "--majority",
            dest="majority",
            help="Survive the loss of the launcher's host if more than half of the ranks remain.",
        ),
    ]
