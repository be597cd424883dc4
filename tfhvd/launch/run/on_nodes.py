"""A job on machines of a cluster's scheduler, for the adapters of Ray, Dask and Spark.

An adapter runs one of its functions on every machine. Each of them has a `NodeServer`; one of them
calls `run_on_nodes`, which does the work of `tfhvd.run` with these machines as hosts. Only the
ranks read the pickles of the user's program, and only the user's program reads the pickles of the
ranks: the processes of the cluster may look for modules in other folders.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfhvd.errors import TfhvdError
from tfhvd.launch.run import caller, remote_shell
from tfhvd.launch.run.node import Node
from tfhvd.launch.run.payload import call_of, payload_of
from tfhvd.network import address, tokens


@dataclass(frozen=True)
class Work:
    """The work of every rank.

    Attributes:
        payload: the call, from `payload_of`.
        env: variables for all ranks.
        start_timeout: the seconds in which all ranks must have started.
    """

    payload: bytes = field(repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    start_timeout: float | None = None


def run_on_nodes(
    work: Work,
    nodes: Sequence[Node],
    token: str,
    node_env: Mapping[str, Mapping[str, str]] | None = None,
    cancelled: threading.Event | None = None,
) -> caller.Outcome:
    """Starts a job on nodes, and waits for its end. The first node must call it.

    Args:
        work: the work of the ranks.
        nodes: the nodes, each with its number of ranks; rank 0 is on the first.
        token: the token of the nodes' servers.
        node_env: by the host of a node, variables for the ranks on this node.
        cancelled: an event that ends the job.
    """
    payload = work.payload
    if node_env:
        only = nodes[0].host if len(nodes) == 1 else None
        own = {node.host: dict(node_env.get(node.host, {})) for node in nodes}
        payload = payload_of(_OnNode(payload, own, only), (), {})
    hosts = ",".join(
        f"{f'[{node.host}]' if ':' in node.host else node.host}:{node.slots}" for node in nodes
    )
    with remote_shell.program(nodes, token) as shell:
        options = {
            "-np": sum(node.slots for node in nodes),
            "--hosts": hosts,
            "--start-timeout": work.start_timeout,
            "--remote-shell": shell,
        }
        words = caller.option_words(options, work.env)
        words += ["--encrypt"] if tokens.encrypts(token) else []
        return caller.call(words, payload, cancelled=cancelled)


class _OnNode:
    """A pickled call; its rank first finds out its node, and sets the variables of this node."""

    def __init__(self, payload: bytes, env: Mapping[str, Mapping[str, str]], only: str | None):
        self._payload = payload
        self._env = env
        self._only = only  # the host of the only node; it may not be an address of an interface

    def __call__(self) -> Any:
        own = address.own() if self._only is None else {self._only}
        here = own & self._env.keys()
        if not here:
            raise TfhvdError(
                f"This rank cannot tell which of the job's machines it is on: its addresses are "
                f"{', '.join(sorted(own))}, and the cluster calls its machines "
                f"{', '.join(sorted(self._env))}. Have the cluster name them by their addresses."
            )
        for host in here:
            os.environ.update(self._env[host])
        func, args, kwargs = call_of(self._payload)
        return func(*args, **kwargs)
