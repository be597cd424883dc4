"""What ranks do with tensors on GPUs, through the kernels for GPUs.

Called by fake_jobs.py on the fakes, and by real_gpu.py on a GPU. What is not a collective has no
kernel on the fakes' pluggable device: it is computed on the CPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_jobs
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.load_library import load_pluggable_device_library

ON_FAKES = "TFHVD_TEST_DEVICE" in os.environ
if ON_FAKES:
    load_pluggable_device_library(os.environ["TFHVD_TEST_DEVICE"])
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "keras"))

import equivalence  # noqa: E402

import tfhvd as hvd  # noqa: E402
from tfhvd.ops import _kernels  # noqa: E402


def run(parts: tuple[str, ...]) -> None:
    """Goes through parts of the job, by their names."""
    for part in parts:
        if not hvd.is_initialized() and part != "jobs side by side":
            hvd.init()
        DO[part]()
        print(f"passed: {part}", flush=True)


@contextlib.contextmanager
def settings(**values: str) -> Iterator[None]:
    """A job with these settings, between two that have others."""
    before = {name: os.environ.get(name) for name in values}
    hvd.shutdown()
    os.environ.update(values)
    hvd.init()
    yield
    hvd.shutdown()
    for name, value in before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value


@contextlib.contextmanager
def fake(name: str, value: int) -> Iterator[None]:
    """A setting of the fakes: see fakes/fake_cuda.h."""
    driver = ctypes.CDLL(os.environ["TFHVD_CUDA_LIBRARY"])
    driver.tfhvd_fake_set(name.encode(), value)
    yield
    driver.tfhvd_fake_set(name.encode(), 0)


def on_gpu(value: Any, dtype: tf.DType = tf.float32) -> tf.Tensor:
    with tf.device("/GPU:0"):
        tensor = tf.identity(tf.constant(value, dtype))
    assert "GPU:0" in tensor.device, tensor.device
    return tensor


def check(got: tf.Tensor, expected: Any) -> None:
    assert "GPU:0" in got.device, got.device
    assert got.numpy().tolist() == expected, (got.numpy().tolist(), expected)


def jobs_side_by_side() -> None:
    """Two jobs of two ranks each, which nobody gave GPUs to: no GPU is in both."""
    number = fake_jobs.number()
    hvd.init(comm=[0, 1] if number < 2 else [2, 3])
    assert hvd.local_rank() == number % 2
    gpus = tf.config.list_physical_devices("GPU")
    assert tf.config.get_visible_devices("GPU") == [gpus[number]], (gpus, number)
    check(hvd.allreduce(on_gpu([float(number)]), op=hvd.Sum), [1.0 if number < 2 else 5.0])
    hvd.shutdown()


def collectives() -> None:
    rank, size = hvd.rank(), hvd.size()
    # The last rank joins before it ever had a tensor on its GPU.
    if size > 1 and rank < size - 1:
        check(hvd.allreduce(on_gpu([1.0]), op=hvd.Sum, name="joined"), [size - 1.0])
    hvd.join()
    reductions()
    movements()
    process_sets()
    steps()


def reductions() -> None:
    rank, size = hvd.rank(), hvd.size()
    total = float(sum(range(size)))
    integers = (tf.int32, tf.int64, tf.int16, tf.uint16, tf.uint32, tf.uint64)
    floats = (tf.float32, tf.bfloat16, tf.float16, tf.float64, tf.complex64, tf.complex128)
    for dtype in (*floats, *integers):
        x = on_gpu([rank, rank + 1, 2], dtype)
        check(hvd.allreduce(x, op=hvd.Sum), [total, total + size, 2 * size])
    check(hvd.allreduce(on_gpu([rank, 4.0])), [total / size, 4.0])
    factors = {"prescale_factor": 0.5, "postscale_factor": 3.0}
    check(hvd.allreduce(on_gpu([2.0]), op=hvd.Sum, **factors), [3.0 * size])
    check(hvd.allreduce(on_gpu([float(rank)]), op=hvd.Max), [size - 1.0])
    check(hvd.allreduce(on_gpu([float(rank)]), op=hvd.Min), [0.0])
    check(hvd.allreduce(on_gpu([2], tf.int32), op=hvd.Average), [2])  # by way of the host
    check(hvd.allreduce(on_gpu([3.0, 4.0]), op=hvd.Adasum), [3.0, 4.0])  # of equals: their mean
    unit = [float(r == rank) for r in range(size)]
    check(hvd.allreduce(on_gpu(unit), op=hvd.Adasum), [1.0] * size)  # at right angles: their sum
    a, b = hvd.grouped_allreduce([on_gpu([1.0]), on_gpu([[2.0, 3.0]])], op=hvd.Sum)
    check(a, [1.0 * size])
    check(b, [[2.0 * size, 3.0 * size]])
    rows = size + 1  # the first rank gets two
    mine = hvd.reducescatter(on_gpu([[float(r), 1.0] for r in range(rows)]), op=hvd.Sum)
    check(mine, [[float(r * size), float(size)] for r in ([0, 1] if rank == 0 else [rank + 1])])
    a, b = hvd.grouped_reducescatter([on_gpu([1.0] * size), on_gpu([[2.0]] * size)], op=hvd.Sum)
    check(a, [1.0 * size])
    check(b, [[2.0 * size]])


def movements() -> None:
    rank, size = hvd.rank(), hvd.size()
    ranks = range(size)
    gathered = [float(r) for r in ranks for _ in range(r + 1)]
    check(hvd.allgather(on_gpu([float(rank)] * (rank + 1))), gathered)
    check(hvd.allgather(on_gpu([])), [])
    for root in ranks:
        check(hvd.broadcast(on_gpu([float(rank)]), root), [float(root)])
    sent = [(rank + r) % 3 for r in ranks]
    rows = on_gpu([10.0 * rank + r for r in ranks for _ in range(sent[r])])
    rows, splits = hvd.alltoall(rows, splits=tf.constant(sent))
    check(rows, [10.0 * r + rank for r in ranks for _ in range((r + rank) % 3)])
    assert splits.numpy().tolist() == [(r + rank) % 3 for r in ranks]
    a, b = hvd.grouped_allgather([on_gpu([rank]), on_gpu([[rank, 2.0]])])
    check(a, [float(r) for r in ranks])
    check(b, [[float(r), 2.0] for r in ranks])


def process_sets() -> None:
    """Communicators of their own, two at once on some ranks."""
    ranks = list(range(hvd.size()))
    for members in (ranks[::2], ranks[:-1]) if len(ranks) > 1 else ():
        some = hvd.add_process_set(members)
        if hvd.rank() in members:
            got = hvd.allreduce(on_gpu([float(hvd.rank())]), op=hvd.Sum, process_set=some)
            check(got, [float(sum(members))])
        hvd.remove_process_set(some)


def steps() -> None:
    """Steps that repeat, with tensors of both kinds in each."""
    rank, size = hvd.rank(), hvd.size()
    total = float(sum(range(size)))

    @tf.function
    def step(tensors):
        with tf.device("/GPU:0"):
            results = [hvd.allreduce(t, op=hvd.Sum, name=f"t{i}") for i, t in enumerate(tensors)]
        with tf.device("/CPU:0"):
            return results, hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum, name="on the CPU")

    for repeat in range(20):
        results, on_cpu = step([on_gpu([float(repeat + rank + i)] * 100) for i in range(10)])
        for i, result in enumerate(results):
            assert result.numpy().tolist() == [size * (repeat + i) + total] * 100, (repeat, i)
        assert on_cpu.numpy().tolist() == [size, 2.0 * size]


@contextlib.contextmanager
def reduced_on_gpu(at_least: int) -> Iterator[None]:
    """So many reductions are placed on the GPU meanwhile."""
    placed = []
    original = _kernels.on_device
    _kernels.on_device = lambda name: (placed.append(name), original(name))[1]
    with tf.device("/CPU:0"):
        yield
    _kernels.on_device = original
    assert hvd.size() == 1 or placed.count("/GPU:0") >= at_least, placed


def backward_pass() -> None:
    """A tape's buckets are done together, step after step, and each has its numbers."""
    rank, size = hvd.rank(), hvd.size()
    with tf.device("/CPU:0"):
        weights = [tf.Variable(tf.ones([300000])) for _ in range(5)]

        @tf.function
        def step(x):
            with hvd.DistributedGradientTape(
                tf.GradientTape(), device_dense="/GPU:0", op=hvd.Sum
            ) as tape:
                loss = sum(tf.reduce_sum(w * x * (i + 1.0)) for i, w in enumerate(weights))
            return tape.gradient(loss, weights)

        graph = step.get_concrete_function(tf.constant(0.0)).graph
        reductions = [op for op in graph.get_operations() if op.type.endswith("Allreduce")]
        assert size == 1 or len(reductions) > 1
        assert all(op.get_attr("buckets") == len(reductions) for op in reductions)
        for number in range(20):
            total = sum(number + r for r in range(size))
            for i, got in enumerate(step(tf.constant(float(number + rank)))):
                assert (got.numpy() == (i + 1) * total).all(), (number, i)


def equivalent() -> None:
    """Training on n ranks is the training of one with the joined batch: as on the CPU."""
    with reduced_on_gpu(4):
        for kind in equivalence.MAKE:
            for train in (equivalence.fit, equivalence.loop_with_tape):
                equivalence.check("keras", train, kind, "/GPU:0")


def training() -> None:
    """The same, less exactly, where gradients travel in 16 bits."""
    rank, size = hvd.rank(), hvd.size()

    def train(x: tf.Tensor, y: tf.Tensor, make_tape: Callable[[], Any]) -> np.ndarray:
        weights = tf.Variable([0.1, 0.2, 0.3, 0.4])
        for _ in range(10):
            with make_tape() as tape:
                loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, weights) - y))
            gradient = tape.gradient(loss, weights)
            weights.assign_sub(0.1 * gradient)
        return weights.numpy()

    with reduced_on_gpu(30):
        features = tf.reshape(tf.cos(tf.range(64.0 * size)), [-1, 4])
        labels = tf.reduce_sum(features * [1.0, -2.0, 3.0, 0.5], 1) + 1.0
        expected = train(features, labels, tf.GradientTape)
        assert abs(expected - [0.1, 0.2, 0.3, 0.4]).max() > 0.2, expected  # something was learned
        for compression, close in (("none", 1e-5), ("fp16", 2e-2), ("bf16", 8e-2)):

            def make_tape(compression: str = compression) -> Any:
                return hvd.DistributedGradientTape(
                    tf.GradientTape(),
                    device_dense="/GPU:0",
                    compression=getattr(hvd.Compression, compression),
                )

            got = train(features[rank::size], labels[rank::size], make_tape)
            assert abs(got - expected).max() < close, (compression, got, expected)
            assert hvd.allgather(got[None]).numpy().tolist() == [got.tolist()] * size


def expect(call: Callable[[], Any], *words: str) -> None:
    """The call is refused on every rank, in these words."""
    try:
        call()
    except tf.errors.InvalidArgumentError as error:
        for word in words:
            assert word in error.message, error.message
    else:
        raise AssertionError(f"was not refused: {words}")


def mismatches() -> None:
    """Each is an error on every rank, and the job continues."""
    rank, size = hvd.rank(), hvd.size()

    @tf.function
    def exchange(rows, splits):
        with tf.device("/GPU:0"):
            return hvd.alltoall(rows, splits=splits, name="splits")

    expect(lambda: exchange(on_gpu([1.0] * size), tf.constant([2] * size)), "splits")
    if size > 1:
        expect(
            lambda: hvd.allreduce(on_gpu([1.0] * (rank + 1)), name="counts"),
            "rank 0: float32[1]",
            "rank 1: float32[2]",
        )
        x = on_gpu([1.0]) if rank == 0 else tf.constant([1.0])
        with tf.device("/GPU:0" if rank == 0 else "/CPU:0"):
            expect(lambda: hvd.allreduce(x, name="x"), "device", "rank 0: GPU", ": CPU")
    check(hvd.allreduce(on_gpu([2.0]), name="counts"), [2.0])


def asynchronous_error() -> None:
    """What NCCL fails with later ends the job on every rank; another job may follow."""
    with fake("NCCL_FAIL_AFTER", 3):
        try:
            for number in range(1000):
                hvd.allreduce(on_gpu([1.0]), name=f"number {number}")
        except tf.errors.OpError as error:
            assert "ibv_modify_qp failed (injected by a test)" in error.message, error.message
        else:
            raise AssertionError("no error came")
    hvd.shutdown()
    hvd.init()
    check(hvd.allreduce(on_gpu([1.0]), op=hvd.Sum), [float(hvd.size())])


def without_nccl() -> None:
    with settings(TFHVD_NCCL_LIBRARY=""):
        collectives()


def without_our_kernel() -> None:
    with fake("NO_KERNELS", 1), settings():
        collectives()


def killed_peer() -> None:
    """The last rank is killed, and the launcher does not notice: the others must."""
    rank, size = hvd.rank(), hvd.size()
    total = np.array([size])
    try:
        for number in range(1000):
            now = hvd.allreduce(on_gpu([1.0] * 1000), op=hvd.Sum, name="step").numpy()
            # What was under way when the rank was lost has any value: the next collective says so.
            assert (total == size).all()
            total = now
            if rank == size - 1 and number == 50:
                os.kill(os.getpid(), signal.SIGKILL)
    except tf.errors.AbortedError as error:
        assert f"rank {size - 1}" in error.message, error.message
    else:
        raise AssertionError("nothing was heard")
    print("passed: killed peer", flush=True)
    fake_jobs.heard(rank).touch()
    fake_jobs.wait_for_all_but_the_last()
    os._exit(0)  # the job is broken


DO: dict[str, Callable[[], None]] = {
    "jobs side by side": jobs_side_by_side,
    "collectives": collectives,
    "backward pass": backward_pass,
    "equivalence": equivalent,
    "training": training,
    "mismatches": mismatches,
    "asynchronous error": asynchronous_error,
    "without NCCL": without_nccl,
    "without our kernel": without_our_kernel,
    "killed peer": killed_peer,
}


def share_a_gpu() -> None:
    """Both ranks choose the first GPU: refused, and then asked for."""
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[:1], "GPU")
    hvd.init()
    try:
        hvd.allreduce(on_gpu([1.0]), name="x")
    except tf.errors.OpError as error:
        print(error.message)
    with settings(TFHVD_GPU_OPERATIONS="host"):
        print(hvd.allreduce(on_gpu([1.0]), name="x").numpy().tolist())
