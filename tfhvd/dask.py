"""tfhvd on a Dask cluster: `tfhvd.dask.run`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from distributed import Client, Future, Worker, default_client, get_worker, wait

from tfhvd.errors import TfhvdError
from tfhvd.launch.run.caller import Outcome
from tfhvd.launch.run.node import Node, NodeServer
from tfhvd.launch.run.on_nodes import Work, run_on_nodes
from tfhvd.launch.run.payload import payload_of
from tfhvd.network import tokens
from tfhvd.protocol import variables

_Result = TypeVar("_Result")

_CHECK = 5  # seconds between two checks whether rank 0's worker still exists


def run(
    func: Callable[..., _Result],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    num_workers: int | None = None,
    client: Client | None = None,
    env: Mapping[str, str] | None = None,
    start_timeout: float | None = None,
) -> list[_Result]:
    """Calls a function on every rank of a new job on a Dask cluster, and returns the results.

    One rank runs for each Dask worker, on the worker's machine; give the workers no other tasks
    meanwhile. The job needs no ssh. All machines must have tfhvd, TensorFlow and MPI at the same
    paths.

    Args:
        func: the function to call. It must call `hvd.init()`.
        args: its positional arguments, the same on every rank.
        kwargs: its named arguments.
        num_workers: the number of ranks; by default one for each Dask worker.
        client: the client of the cluster; by default the last one that was made.
        env: variables for the ranks.
        start_timeout: the seconds in which all ranks must have started; 120 by default.

    Returns:
        The results, rank 0's first.

    Raises:
        RankFailedError: if the function raises on a rank, or a rank ends in another way; as in
            `tfhvd.run`.
        TfhvdError: if the cluster has fewer workers, or loses the worker of rank 0.
        ValueError: if `num_workers` is below 1, or there is no client.

    Example:
        >>> def train():
        ...     import tfhvd.keras as hvd
        ...     hvd.init()
        ...     return hvd.rank()
        >>> client = distributed.Client("tcp://scheduler:8786")
        >>> tfhvd.dask.run(train, num_workers=2)
        [0, 1]
    """
    if num_workers is not None and num_workers < 1:
        raise ValueError(f"Received: num_workers={num_workers}. Expected: 1 or above.")
    client = client or default_client()
    workers = _workers(client)
    chosen = _chosen(workers, len(workers) if num_workers is None else num_workers)
    token = tokens.new({**variables.own(), **(env or {})})
    first_of = {workers[name]["host"]: name for name in reversed(chosen)}
    work = Work(payload_of(func, args, kwargs or {}), env, start_timeout)
    try:
        ports = client.run(_open, token, workers=list(first_of.values()))
        slots = [workers[name]["host"] for name in chosen]
        nodes = [
            Node(host, ports[first_of[host]], slots.count(host)) for host in dict.fromkeys(slots)
        ]
        leading = client.submit(
            _lead,
            work,
            nodes,
            token,
            workers=[chosen[0]],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        return _outcome(client, leading, chosen[0]).results()
    finally:
        there = [name for name in first_of.values() if name in _workers(client)]
        client.run(_close, token, workers=there, on_error="ignore")


def _workers(client: Client) -> Mapping[str, Mapping[str, Any]]:
    """Returns the scheduler's facts about each present worker, by the worker's address."""
    workers: Mapping[str, Mapping[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    return workers


def _chosen(workers: Mapping[str, Mapping[str, Any]], number: int) -> list[str]:
    """Returns the addresses of `number` workers, grouped by machine."""
    if not 0 < number <= len(workers):
        raise TfhvdError(
            f"The Dask cluster has {len(workers)} workers, and num_workers={number} asks for more; "
            "start more (as with cluster.scale), or pass a smaller num_workers."
            if workers
            else "The Dask cluster has no workers; start some (as with cluster.scale)."
        )
    machines = list(dict.fromkeys(worker["host"] for worker in workers.values()))
    return sorted(workers, key=lambda name: machines.index(workers[name]["host"]))[:number]


def _outcome(client: Client, leading: Future, name: str) -> Outcome:
    """Waits for the job; raises TfhvdError if the cluster has lost the job's first worker.

    Dask would wait for a new worker with the same name, which would know nothing of the job.
    """
    while True:
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            wait(leading, timeout=_CHECK)
        if leading.done():
            return leading.result()
        if name not in _workers(client):
            leading.cancel()
            raise TfhvdError(
                f"The Dask worker {name}, which ran rank 0, has failed, and the job with it. The "
                "worker's log may say why; often it was short of memory."
            )


class _Job:
    """The state of a job in a worker."""

    def __init__(self, token: str) -> None:
        self.server = NodeServer(token)
        self.cancelled = threading.Event()


def _jobs(worker: Worker) -> dict[str, _Job]:
    """Returns the jobs of a worker, by their tokens."""
    jobs: dict[str, _Job] = worker.__dict__.setdefault("_tfhvd_jobs", {})
    return jobs


def _open(token: str, dask_worker: Worker) -> int:
    """Opens a server on a worker; returns its port."""
    jobs = _jobs(dask_worker)
    jobs[token] = _Job(token)
    return jobs[token].server.port


def _lead(work: Work, nodes: list[Node], token: str) -> Outcome:
    """Starts the job from its first worker."""
    return run_on_nodes(work, nodes, token, cancelled=_jobs(get_worker())[token].cancelled)


def _close(token: str, dask_worker: Worker) -> None:
    """Ends the rest of the job, such as after Ctrl-C."""
    job = _jobs(dask_worker).pop(token, None)
    if job is not None:
        job.cancelled.set()
        job.server.close()
