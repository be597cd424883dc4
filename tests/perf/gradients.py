"""Time to reduce a model's gradients inside a tf.function, beside plain MPI and a memcpy.

    tfhvdrun -np 2 python tests/perf/gradients.py [--json FILE] [--repetitions N] [--only NAME ...]

Every column is measured in the same run, on the same bytes, in milliseconds (median):

- identity: the same function with tf.identity in place of each allreduce: TensorFlow's own cost
- tfhvd: the function with one hvd.allreduce (Sum) a tensor
- MPI: one MPI_Allreduce of one float32 buffer of as many bytes, where mpi4py is installed
- memcpy: one copy of as many bytes
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from math import prod
from pathlib import Path

import numpy as np
import tensorflow as tf
from workloads import WORKLOADS, Shape

import tfhvd as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--only", nargs="*", choices=sorted(WORKLOADS), help="the cases to run")
    return parser.parse_args()


def timed(call: Callable[[], object], repetitions: int, budget: float = 8.0) -> list[float]:
    """Milliseconds of each repetition; at least 5, and no new one after `budget` seconds."""
    for _ in range(3):
        call()
    times: list[float] = []
    # Rank 0's clock decides for all, so that all run the same number of repetitions.
    begin = time.perf_counter()
    call()
    estimate = time.perf_counter() - begin
    count = max(5, min(repetitions, int(budget / max(estimate, 1e-6))))
    count = int(hvd.broadcast_object(count, root_rank=0, name="bench.count"))
    for _ in range(count):
        hvd.barrier()
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def reducer(shapes: list[Shape], collective: bool) -> Callable[[], object]:
    """A compiled function of all tensors; the result is one number that depends on each."""
    tensors = [tf.ones(shape) * (hvd.rank() + 1.0) for shape in shapes]

    @tf.function
    def step() -> list[tf.Tensor]:
        if not collective:
            return [tf.identity(x) for x in tensors]
        return [hvd.allreduce(x, op=hvd.Sum, name=f"g{i}") for i, x in enumerate(tensors)]

    if collective:
        expected = sum(range(1, hvd.size() + 1))
        for out in step():
            if not np.all(out.numpy() == expected):
                raise SystemExit("wrong sum")
    return step


def plain_mpi(elements: int) -> Callable[[], object] | None:
    try:
        from mpi4py import MPI
    except ImportError:
        return None
    if not MPI.Is_initialized() or MPI.COMM_WORLD.size != hvd.size():
        return None
    source, target = np.ones(elements, np.float32), np.empty(elements, np.float32)
    return lambda: MPI.COMM_WORLD.Allreduce(source, target)


def memcpy(elements: int) -> Callable[[], object]:
    source, target = np.ones(elements, np.float32), np.empty(elements, np.float32)
    return lambda: np.copyto(target, source)


def measure(name: str, repetitions: int) -> dict[str, float | str | None]:
    shapes = WORKLOADS[name]()
    elements = sum(prod(shape) for shape in shapes)
    identity = timed(reducer(shapes, collective=False), repetitions)
    ours = timed(reducer(shapes, collective=True), repetitions)
    mpi = plain_mpi(elements)
    seconds = statistics.median(ours) / 1e3
    return {
        "case": name,
        "tensors": len(shapes),
        "MB": elements * 4 / 1e6,
        "identity": statistics.median(identity),
        "tfhvd": statistics.median(ours),
        "tfhvd p99": float(np.percentile(ours, 99)),
        "above identity": statistics.median(ours) - statistics.median(identity),
        "MPI": statistics.median(timed(mpi, repetitions)) if mpi else None,
        "memcpy": statistics.median(timed(memcpy(elements), repetitions)),
        "busbw GB/s": elements * 4 / seconds * 2 * (hvd.size() - 1) / hvd.size() / 1e9,
    }


def main() -> None:
    arguments = parse_arguments()
    # One thread each for computation, as in the table of rivals.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    rows = []
    for name in arguments.only or WORKLOADS:
        rows.append(measure(name, arguments.repetitions))
        if hvd.rank() == 0:
            cells = {k: f"{v:.3f}" if isinstance(v, float) else str(v) for k, v in rows[-1].items()}
            if len(rows) == 1:
                print(" ".join(f"{k:>14}" for k in cells), flush=True)
            print(" ".join(f"{v:>14}" for v in cells.values()), flush=True)
    if hvd.rank() == 0 and arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    hvd.shutdown()


if __name__ == "__main__":
    main()
