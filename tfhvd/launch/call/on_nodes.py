"""A job on machines of a cluster's scheduler, for the adapters of Ray, Dask and Spark.

An adapter has one function of its own run on every machine. Each keeps a `NodeServer`; one of them
calls `run_on_nodes`, which is `tfhvd.run` with these machines as its hosts.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfhvd.errors import RankFailedError
from tfhvd.launch import address
from tfhvd.launch.call import exchange, remote_shell
from tfhvd.launch.call.caller import run
from tfhvd.launch.call.node import Node


@dataclass(frozen=True)
class Work:
    """What every rank is to do.

    Attributes:
        payload: what to call and with what, as `payload_of` pickles it: not the function itself,
            for a cluster would look for its module elsewhere than its caller does.
        env: variables for all ranks.
        start_timeout: the seconds in which all ranks must have started.
    """

    payload: bytes
    env: Mapping[str, str] | None = None
    start_timeout: float | None = None


def run_on_nodes(
    work: Work,
    nodes: Sequence[Node],
    token: str,
    node_env: Mapping[str, Mapping[str, str]] | None = None,
) -> bytes:
    """Starts a job on these nodes, and waits for it. Called on the first of them.

    Args:
        work: what the ranks are to do.
        nodes: where, each with its number of ranks; rank 0 is on the first.
        token: of the nodes' servers.
        node_env: by the host of a node, variables for its ranks alone.

    Returns:
        What `results_of` takes: the results, or the error, which a cluster would else put in an
        exception of its own.
    """
    hosts = ",".join(
        f"{f'[{node.host}]' if ':' in node.host else node.host}:{node.slots}" for node in nodes
    )
    func, args, kwargs = exchange.call_of(work.payload)
    own = {host: dict(env) for host, env in (node_env or {}).items()}
    func = _OnNode(func, own, nodes[0].host if len(nodes) == 1 else None)
    import cloudpickle

    try:
        with remote_shell.program(nodes, token) as shell:
            results = run(
                func,
                args,
                kwargs,
                np=sum(node.slots for node in nodes),
                hosts=hosts,
                env=work.env,
                start_timeout=work.start_timeout,
                remote_shell=shell,
            )
    except RankFailedError as error:
        cause = error.__cause__
        try:
            return bytes(cloudpickle.dumps((None, error, cause)))
        except Exception:  # the cause is of a kind that cannot be pickled
            return bytes(cloudpickle.dumps((None, error, None)))
    return bytes(cloudpickle.dumps((results, None, None)))


def results_of(outcome: bytes) -> list[Any]:
    """Returns the results of a job, rank 0's first, or raises its error."""
    results, error, cause = pickle.loads(outcome)
    if error is not None:
        raise error from cause
    return list(results)


class _OnNode:
    """A function that finds out first which node it is on, and sets that node's variables."""

    def __init__(
        self, func: Callable[..., Any], env: dict[str, dict[str, str]], only: str | None
    ) -> None:
        self._func = func
        self._env = env
        self._only = only  # the host of the only node, which need not be an address of an interface

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = address.own() if self._only is None else {self._only}
        for host in own & self._env.keys():
            os.environ.update(self._env[host])
        return self._func(*args, **kwargs)
