"""tfhvd on a Spark cluster: `tfhvd.spark.run`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pyspark import BarrierTaskContext, SparkContext

from tfhvd.launch.run.caller import Outcome
from tfhvd.launch.run.node import Node, NodeServer
from tfhvd.launch.run.on_nodes import Work, run_on_nodes
from tfhvd.launch.run.payload import payload_of
from tfhvd.network import tokens
from tfhvd.protocol import variables

_Result = TypeVar("_Result")


def run(
    fn: Callable[..., _Result],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    env: Mapping[str, str] | None = None,
) -> list[_Result]:
    """Calls a function on every rank of a new job on a Spark cluster, and returns the results.

    A barrier stage of `num_proc` tasks holds Spark's cores; each rank runs on the machine of its
    task. Spark starts such a stage when it has cores for all tasks. The job needs no ssh. All
    machines must have tfhvd, TensorFlow and MPI at the same paths.

    Args:
        fn: the function to call. It must call `hvd.init()`.
        args: its positional arguments, the same on every rank.
        kwargs: its named arguments.
        num_proc: the number of ranks; by default `SparkContext.defaultParallelism`.
        start_timeout: the seconds in which all ranks must have started; 120 by default.
        env: variables for the ranks.

    Returns:
        The results, rank 0's first.

    Raises:
        RankFailedError: if the function raises on a rank, or a rank ends in another way; as in
            `tfhvd.run`.
        ValueError: if `num_proc` is below 1.
        py4j.protocol.Py4JJavaError: for errors of Spark, such as too few cores for the stage.

    Example:
        >>> def train():
        ...     import tfhvd.keras as hvd
        ...     hvd.init()
        ...     return hvd.rank()
        >>> spark = pyspark.sql.SparkSession.builder.getOrCreate()
        >>> tfhvd.spark.run(train, num_proc=2)
        [0, 1]
    """
    if num_proc is not None and num_proc < 1:
        raise ValueError(f"Received: num_proc={num_proc}. Expected: 1 or above.")
    context = SparkContext.getOrCreate()
    number = context.defaultParallelism if num_proc is None else num_proc
    token = tokens.new({**variables.own(), **(env or {})})
    work = Work(payload_of(fn, args, kwargs or {}), env, start_timeout)
    stage = context.parallelize(range(number), number).barrier()
    outcome: Outcome
    [outcome] = stage.mapPartitions(lambda _: _task(work, token)).collect()
    return outcome.results()


def _task(work: Work, token: str) -> Iterator[Outcome]:
    """Runs one task of the stage. The first task starts the job, and yields its outcome."""
    context = BarrierTaskContext.get()
    number = context.partitionId()
    host = context.getTaskInfos()[number].address.rpartition(":")[0].strip("[]")  # of IPv6
    server = NodeServer(token)
    try:
        said = context.allGather(json.dumps([host, server.port]))
        if number == 0:
            yield run_on_nodes(work, _nodes([json.loads(text) for text in said]), token)
        context.barrier()  # the job needs the servers of all tasks until its end
    finally:
        server.close()


def _nodes(found: Sequence[tuple[str, Any]]) -> list[Node]:
    """Groups tasks by machine, beginning with the machine of the first task.

    One server for each machine is enough.

    Args:
        found: for each task, its machine and the port of its server.
    """
    ports: dict[str, int] = {}
    slots: dict[str, int] = {}
    for host, port in found:
        ports.setdefault(host, port)
        slots[host] = slots.get(host, 0) + 1
    return [Node(host, port, slots[host]) for host, port in ports.items()]
