"""Flight records made up for tests."""

from __future__ import annotations

from tfhvd.hang.flight_record import Collective, Record
from tfhvd.hang.snapshot import Snapshot


def collective(number=1, name="loss", submitted=5.0, **more):
    values = {
        "number": number,
        "name": name,
        "origin": "train.py:7 in step",
        "kind": "allreduce",
        "tensors": 1,
        "bytes": 4000,
        "submitted": submitted,
        "agreed": None,
        "began": None,
        "ended": None,
        "phase": "",
        "waited_for": None,
        "failed": False,
    }
    return Collective(**{**values, **more})


def record(rank, *collectives, size=2, done=0, epoch=0, step=0, host="n1"):
    return Record(
        rank=rank,
        size=size,
        pid=100 + rank,
        leader=100,
        host=host,
        began=0.0,
        began_unix=0.0,
        epoch=epoch,
        step=step,
        submitted=len(collectives),
        done=done,
        progress=19.0,
        tells_until=0.0,
        taken=20.0,
        collectives=collectives,
    )


def seen(number, *collectives, state="S", cpu=0.0, taken=20.0, **more):
    noted = record(number, *collectives, **more)
    return Snapshot(
        noted, state, cpu, 0, 0, 0.0, 0, "", (("/home/ann/train.py:9 in <module>",),), taken
    )
