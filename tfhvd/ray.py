"""tfhvd on a Ray cluster: `tfhvd.ray.run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tfhvd.errors import TfhvdError
from tfhvd.launch.run.caller import Outcome
from tfhvd.launch.run.node import Node, NodeServer
from tfhvd.launch.run.on_nodes import Work, run_on_nodes
from tfhvd.launch.run.payload import payload_of
from tfhvd.network import tokens
from tfhvd.protocol import variables

_Result = TypeVar("_Result")


def run(
    func: Callable[..., _Result],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    num_workers: int = 1,
    cpus_per_worker: float = 1,
    gpus_per_worker: float = 0,
    env: Mapping[str, str] | None = None,
    start_timeout: float = 120.0,
) -> list[_Result]:
    """Calls a function on every rank of a new job on a Ray cluster, and returns the results.

    Ray gives cores and GPUs to `num_workers` workers, close together if possible. The ranks run
    there until the function returns. The job needs no ssh. All machines must have tfhvd, TensorFlow
    and MPI at the same paths, as with one image for the cluster.

    Args:
        func: the function to call. It must call `hvd.init()`.
        args: its positional arguments, the same on every rank.
        kwargs: its named arguments.
        num_workers: the number of ranks.
        cpus_per_worker: Ray's CPUs for each rank.
        gpus_per_worker: Ray's GPUs for each rank.
        env: variables for the ranks.
        start_timeout: the seconds in which Ray must have found room; and the seconds after that in
            which all ranks must have started.

    Returns:
        The results, rank 0's first.

    Raises:
        RankFailedError: if the function raises on a rank, or a rank ends in another way; as in
            `tfhvd.run`.
        TfhvdError: if Ray has no room for the workers.
        ValueError: if `num_workers` is below 1, or workers would have neither CPUs nor GPUs.

    Example:
        >>> def train():
        ...     import tfhvd.keras as hvd
        ...     hvd.init()
        ...     return hvd.rank()
        >>> tfhvd.ray.run(train, num_workers=4)
        [0, 1, 2, 3]
    """
    if num_workers < 1:
        raise ValueError(f"Received: num_workers={num_workers}. Expected: 1 or above.")
    each = {"CPU": cpus_per_worker, "GPU": gpus_per_worker}
    each = {name: amount for name, amount in each.items() if amount > 0}
    if not each:
        raise ValueError(
            f"Received: cpus_per_worker={cpus_per_worker}, gpus_per_worker={gpus_per_worker}. "
            "Expected: one of them above 0."
        )
    group = placement_group([dict(each) for _ in range(num_workers)], strategy="PACK")
    try:
        if not group.wait(start_timeout):
            have = {name: ray.cluster_resources().get(name, 0) for name in each}
            raise TfhvdError(
                f"Ray has found no room for {num_workers} workers with {each} each in "
                f"{start_timeout:g} s; the cluster has {have} in all, used ones among them. Pass a "
                "smaller num_workers, cpus_per_worker or gpus_per_worker, or start more nodes."
            )
        token = tokens.new({**variables.own(), **(env or {})})
        workers = [
            ray.remote(_Worker)
            .options(
                num_cpus=cpus_per_worker,
                num_gpus=gpus_per_worker,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=group, placement_group_bundle_index=index
                ),
            )
            .remote(token)
            for index in range(num_workers)
        ]
        found = ray.get([worker.describe.remote() for worker in workers])
        nodes, node_env = _nodes(found)
        work = Work(payload_of(func, args, kwargs or {}), env, start_timeout)
        outcome: Outcome = ray.get(workers[0].lead.remote(work, nodes, node_env))
        return outcome.results()
    finally:
        remove_placement_group(group)  # this ends the workers, too


def _nodes(
    found: Sequence[tuple[str, int, Sequence[str]]],
) -> tuple[list[Node], dict[str, dict[str, str]]]:
    """Groups workers by machine; returns the machines, and by machine a variable with its GPUs.

    Args:
        found: for each worker, its machine, the port of its server, and its GPUs.
    """
    ports: dict[str, int] = {}
    slots: dict[str, int] = {}
    gpus: dict[str, list[str]] = {}
    for host, port, of_worker in found:
        ports.setdefault(host, port)  # one server for a machine is enough
        slots[host] = slots.get(host, 0) + 1
        own = gpus.setdefault(host, [])
        own += [gpu for gpu in of_worker if gpu not in own]
    nodes = [Node(host, port, slots[host]) for host, port in ports.items()]
    return nodes, {
        host: {"CUDA_VISIBLE_DEVICES": ",".join(own)} for host, own in gpus.items() if own
    }


class _Worker:
    """A holder of the cores and GPUs of one rank; the worker of rank 0 starts the job."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._server = NodeServer(token)

    def describe(self) -> tuple[str, int, list[str]]:
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        return ray.util.get_node_ip_address(), self._server.port, [str(gpu) for gpu in gpus]

    def lead(self, work: Work, nodes: list[Node], node_env: dict[str, dict[str, str]]) -> Outcome:
        return run_on_nodes(work, nodes, self._token, node_env)
