"""The options of jobs that go on without ranks that are lost, and with others that come."""

from __future__ import annotations

from tfhvd.launch import values
from tfhvd.launch.parser import Row
from tfhvd.launch.rows import switch, value


def elastic_options() -> list[Row]:
    """All of them."""
    return [*_how_many(), *_where(), *_when()]


def _how_many() -> list[Row]:
    return [
        switch(
            "--elastic",
            dest="elastic",
            help="go on without ranks that are lost: no step is. Needs no MPI, and uses none",
        ),
        value(
            *("--min-np", "--min-num-proc"),
            dest="min_np",
            metavar="N",
            convert=values.whole(1),
            help="the same, as long as so many ranks are left (default 1)",
        ),
        value(
            *("--max-np", "--max-num-proc"),
            dest="max_np",
            metavar="N",
            convert=values.whole(1),
            help="the same, and start more ranks, up to so many at a time, where hosts have slots: "
            "also in the place of those that are lost",
        ),
    ]


def _where() -> list[Row]:
    return [
        value(
            "--host-discovery-script",
            dest="discovery",
            metavar="SCRIPT",
            convert=values.script,
            help="the same, on the hosts that it prints, as host:slots or host, once a second",
        ),
        value(
            "--pods",
            dest="pods",
            metavar="N",
            convert=values.whole(1),
            help="the same, on those of the N pods of this indexed Job of Kubernetes that are "
            "there",
        ),
        value(
            *("--slots-per-host", "--slots"),
            dest="slots_per_host",
            metavar="N",
            convert=values.whole(1),
            help="of a pod, or a host of which that script does not say (default 1)",
        ),
        value(
            "--elastic-timeout",
            dest="elastic_timeout",
            metavar="S",
            convert=values.number,
            help="wait so long for hosts with slots for --min-np, before the job begins "
            "(default 600)",
        ),
    ]


def _when() -> list[Row]:
    return [
        value(
            "--reset-limit",
            dest="reset_limit",
            metavar="N",
            convert=values.whole(1),
            help="how often ranks may be lost or come (default: as often as they do)",
        ),
        value(
            "--blacklist-cooldown-range",
            dest="pauses",
            metavar=("MIN", "MAX"),
            nargs=2,
            convert=values.pauses,
            help="seconds until a host on which a rank has failed is tried again: the first time, "
            "and at most; they double (default 1 600)",
        ),
        value(
            "--evict-after",
            dest="evict_after",
            metavar="S",
            convert=values.number,
            help="go on, too, without ranks that are stopped, or that keep the others and do "
            "nothing, for S seconds (default: wait for them)",
        ),
        switch(
            "--majority",
            dest="majority",
            help="go on, too, where tfhvdrun is lost with its host, if more than half of the ranks "
            "are left; and end where more than half are lost at once",
        ),
    ]
