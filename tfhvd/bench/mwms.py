"""MultiWorkerMirroredStrategy as a rival, in a separate process for each rank.

The strategy must be made before TensorFlow does anything, and turns the process's TensorFlow into a
server. So each rank starts one child, `python -m tfhvd.bench.mwms TASK`, with TASK as JSON, and
waits for its results. The child writes them to its standard output. Then it stays until it is
killed or its standard input ends, because the children of other ranks may still need its server.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Union

from tfhvd.bench.measure import Effort, Subject, measure
from tfhvd.bench.metrics import Times
from tfhvd.bench.workloads import TensorSet

# The times by the set's name, or the reason why there are none.
Found = Union[dict[str, Times], str]

_START_SECONDS = 120.0
_MARK = "tfhvd.bench.mwms: "  # before the results, because TensorFlow may print, too


def free_address(host: str) -> str:
    """Returns host:port with a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return f"{host}:{probe.getsockname()[1]}"


def run(
    workers: Sequence[str],
    index: int,
    sets: Sequence[TensorSet],
    effort: Effort,
    threads: int,
    exchange: Callable[[Found], list[Found]],
) -> list[Found]:
    """Measures in a child of this process; every rank calls it at the same time.

    Args:
        workers: host:port of each rank.
        index: the number of this rank.
        sets: the tensors to reduce.
        effort: how long to measure.
        threads: the number of TensorFlow's threads for computation.
        exchange: returns the results of every rank, by rank. The children live until it returns: if
            a child ended while another one waits, the last collective of the other would fail.

    Returns:
        By rank, the times by the set's name, or the reason why the strategy did not run.
    """
    task = {
        "workers": list(workers),
        "index": index,
        "sets": [[each.name, each.shapes] for each in sets],
        "effort": [effort.repetitions, effort.seconds],
        "threads": threads,
    }
    limit = _START_SECONDS + len(sets) * (10 * effort.seconds + 20)
    with subprocess.Popen(
        [sys.executable, "-m", "tfhvd.bench.mwms", json.dumps(task)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        listener = _Listener(child)
        try:
            return exchange(listener.found(limit))
        finally:
            child.kill()
            listener.join()


class _Listener:
    """A reader of a child's output, with two threads: for its results and its errors."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        self._results: str | None = None
        self._said = ["nothing"]
        self._readers = [
            threading.Thread(target=read, daemon=True)
            for read in (self._read_results, self._read_complaints)
        ]
        for reader in self._readers:
            reader.start()

    def found(self, seconds: float) -> Found:
        """Waits for the child's results, or for its end without any."""
        self._readers[0].join(seconds)
        if self._readers[0].is_alive():
            return f"it did not end within {seconds:.0f} s"
        if self._results is not None:
            return {name: Times(*numbers) for name, numbers in json.loads(self._results).items()}
        code = self._child.wait()
        self.join()
        return f"its process ended with {code}; its last lines: {self._said[-1].strip()[:300]}"

    def join(self) -> None:
        """Waits until all output is read; for a child that has ended or soon ends."""
        for reader in self._readers:
            reader.join()

    def _read_results(self) -> None:
        for line in self._child.stdout or ():
            if line.startswith(_MARK):
                self._results = line[len(_MARK) :]
                return

    def _read_complaints(self) -> None:
        self._said += [line for line in self._child.stderr or () if line.strip()]


class _StrategyRanks:
    """The ranks of a strategy's cluster."""

    def __init__(self, strategy: Any, rank: int, size: int) -> None:
        import tensorflow as tf

        self.rank, self.size = rank, size

        @tf.function
        def gather(own: Any) -> Any:
            def replica() -> Any:
                local = tf.identity(own)
                return tf.distribute.get_replica_context().all_gather(local, axis=0)

            return strategy.run(replica)

        self._gather = gather

    def gather(self, numbers: Sequence[float]) -> list[list[float]]:
        """Returns each rank's numbers, by rank."""
        import tensorflow as tf

        return self._gather(tf.constant([list(numbers)], tf.float64)).numpy().tolist()


def _subject(strategy: Any, tensors: TensorSet, rank: int) -> Subject:
    """Returns the reduction of all tensors of the set as one list, as for gradients."""
    import tensorflow as tf

    made = [tf.fill(shape, float(rank + 1)) for shape in tensors.shapes]

    @tf.function(autograph=False)
    def step() -> Any:
        def replica() -> Any:
            # A tensor from outside the function has no device, which the strategy needs.
            own = [tf.identity(x) for x in made]
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own)

        return strategy.run(replica)

    return Subject(tensors.name, step)


def _child(task: dict[str, Any]) -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(task["threads"])
    tf.config.set_visible_devices([], "GPU")
    cluster = tf.train.ClusterSpec({"worker": task["workers"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="worker", task_id=task["index"], rpc_layer="grpc"
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    ranks = _StrategyRanks(strategy, task["index"], len(task["workers"]))
    results: dict[str, tuple[Any, ...]] = {}
    for name, shapes in task["sets"]:
        tensors = TensorSet(name, tuple(map(tuple, shapes)))
        subject = _subject(strategy, tensors, ranks.rank)
        total = ranks.size * (ranks.size + 1) / 2
        sums: Any = subject.call()
        if any(float(tf.reduce_min(x)) != total for x in sums):
            raise SystemExit(f"wrong sum of {name}")
        times = measure([subject], Effort(*task["effort"]), ranks)[name]
        results[name] = dataclasses.astuple(times)
    print(_MARK + json.dumps(results), flush=True)


def _end_with_parent() -> threading.Thread:
    """Ends this process when its parent has ended, even if TensorFlow still waits."""

    def watch() -> None:
        sys.stdin.read()
        os._exit(1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


if __name__ == "__main__":
    watcher = _end_with_parent()
    _child(json.loads(sys.argv[1]))
    watcher.join()
