"""What one process finds out about itself and its machine, as plain values that travel as JSON.

Nothing here changes anything, and nothing is imported that takes seconds. What cannot be found out
is left empty.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfhvd.tools import machine, nvml, software


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a process reports.

    Attributes:
        host: the name that its machine gives itself.
        machine_id: equal for all processes of one host, and for them alone.
        versions: of each package or library, by its name; "" if it is not there.
        build: what this tfhvd was compiled with, and a mark of the core's file.
        problems: why tfhvd cannot work here, in words that say what to type.
        cores: which it may use.
        memory: how much there is.
        rooms: the folders that it writes to.
        limits: of the process.
        interfaces: of the network, except loopback.
        infiniband: the names of such adapters.
        gpus: those that the driver shows.
        visible_gpus: what CUDA_VISIBLE_DEVICES says; None if it is not set.
        nccl: its version, or why there is none.
        has_nccl: whether there is one.
    """

    host: str = ""
    machine_id: str = ""
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    build: str = ""
    problems: tuple[str, ...] = ()
    cores: machine.Cores = dataclasses.field(default_factory=machine.Cores)
    memory: machine.Memory = dataclasses.field(default_factory=machine.Memory)
    rooms: tuple[machine.Room, ...] = ()
    limits: machine.Limits = dataclasses.field(default_factory=machine.Limits)
    interfaces: tuple[machine.Interface, ...] = ()
    infiniband: tuple[str, ...] = ()
    gpus: tuple[nvml.Gpu, ...] = ()
    visible_gpus: str | None = None
    nccl: str = ""
    has_nccl: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns an object that `from_json` reads."""
        return dataclasses.asdict(self)


def from_json(fields: Mapping[str, Any]) -> Facts:
    """Reads what `Facts.to_json` has written.

    Example:
        >>> from_json(Facts(host="a").to_json()).host
        'a'
    """
    values = dict(fields)
    values["problems"] = tuple(values["problems"])
    values["infiniband"] = tuple(values["infiniband"])
    cores = values["cores"]
    values["cores"] = machine.Cores(**{**cores, "allowed": tuple(cores["allowed"])})
    values["memory"] = machine.Memory(**values["memory"])
    values["rooms"] = tuple(machine.Room(**each) for each in values["rooms"])
    values["limits"] = machine.Limits(**values["limits"])
    values["interfaces"] = tuple(machine.Interface(**each) for each in values["interfaces"])
    values["gpus"] = tuple(nvml.Gpu(**each) for each in values["gpus"])
    return Facts(**values)


def gather(environ: Mapping[str, str]) -> Facts:
    """Looks at this process.

    Args:
        environ: its environment.
    """
    found = software.find()
    return Facts(
        host=machine.host_name(),
        machine_id=machine.machine_id(),
        versions=found.versions,
        build=found.build,
        problems=found.problems,
        cores=machine.cores(environ),
        memory=machine.memory(),
        rooms=machine.rooms(),
        limits=machine.limits(),
        interfaces=machine.interfaces(),
        infiniband=machine.infiniband(),
        gpus=nvml.find(),
        visible_gpus=environ.get("CUDA_VISIBLE_DEVICES"),
        nccl=found.nccl,
        has_nccl=found.has_nccl,
    )
