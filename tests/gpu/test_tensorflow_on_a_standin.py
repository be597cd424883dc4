"""TensorFlow's tensors on a stand-in GPU, through the kernels for GPUs; NCCL is a stand-in as well.

The stand-ins are libraries of the tests, found as a user's are: by TFHVD_CUDA_LIBRARY and
TFHVD_NCCL_LIBRARY. They say nothing of a GPU's time or memory; see tests/gpu/run.sh.
"""

from __future__ import annotations

from pathlib import Path

import mpi
import pytest
from gpu_build import build_device, build_driver

START = """
import os
import tensorflow as tf
from tensorflow.python.framework.load_library import load_pluggable_device_library
load_pluggable_device_library(os.environ["TFHVD_TEST_DEVICE"])
import tfhvd as hvd
hvd.init()
rank, size = hvd.rank(), hvd.size()

def on_gpu(value, dtype=tf.float32):
    with tf.device("/GPU:0"):
        tensor = tf.identity(tf.constant(value, dtype))
    assert "GPU:0" in tensor.device, tensor.device
    return tensor
"""

COLLECTIVES = (
    START
    + """
def check(got, expected):
    assert "GPU:0" in got.device, got.device
    assert got.numpy().tolist() == expected, (got.numpy().tolist(), expected)

ranks = list(range(size))
total = float(sum(ranks))
for dtype in (tf.float32, tf.bfloat16, tf.float16, tf.float64, tf.int32, tf.int64):
    x = on_gpu([rank, rank + 1, 2], dtype)
    check(hvd.allreduce(x, op=hvd.Sum), [total, total + size, 2 * size])
check(hvd.allreduce(on_gpu([rank, 4.0])), [total / size, 4.0])
check(hvd.allreduce(on_gpu([2.0]), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
      [3.0 * size])
check(hvd.allreduce(on_gpu([float(rank)]), op=hvd.Max), [size - 1.0])
check(hvd.allreduce(on_gpu([float(rank)]), op=hvd.Min), [0.0])
check(hvd.allreduce(on_gpu([2], tf.int32), op=hvd.Average), [2])  # by way of the host
gathered = [float(r) for r in ranks for _ in range(r + 1)]
check(hvd.allgather(on_gpu([float(rank)] * (rank + 1))), gathered)
for root in ranks:
    check(hvd.broadcast(on_gpu([float(rank)]), root), [float(root)])
check(hvd.reducescatter(on_gpu([[1.0]] * size), op=hvd.Sum), [[float(size)]])
rows, splits = hvd.alltoall(on_gpu([float(rank)] * size), splits=tf.constant([1] * size))
check(rows, [float(r) for r in ranks])
assert splits.numpy().tolist() == [1] * size
a, b = hvd.grouped_allreduce([on_gpu([1.0]), on_gpu([[2.0, 3.0]])], op=hvd.Sum)
check(a, [1.0 * size])
check(b, [[2.0 * size, 3.0 * size]])

@tf.function
def step(tensors):
    with tf.device("/GPU:0"):
        return [hvd.allreduce(t, op=hvd.Sum, name=f"t{i}") for i, t in enumerate(tensors)]

for repeat in range(20):
    results = step([on_gpu([float(repeat + rank + i)] * 100) for i in range(10)])
    for i, result in enumerate(results):
        assert result.numpy().tolist() == [size * (repeat + i) + total] * 100, (repeat, i)
print("good")
"""
)

MIXED = (
    START
    + """
x = on_gpu([1.0]) if rank == 0 else tf.constant([1.0])
with tf.device("/GPU:0" if rank == 0 else "/CPU:0"):
    try:
        print("no error, on", hvd.allreduce(x, name="x").device)
    except tf.errors.InvalidArgumentError as error:
        print(error.message)
with tf.device("/CPU:0"):
    assert hvd.allreduce(tf.constant([1.0]), op=hvd.Sum).numpy() == [2.0]
"""
)

SAME_GPU = (
    START.replace(
        "hvd.init()",
        "gpus = tf.config.list_physical_devices('GPU')\n"
        "tf.config.set_visible_devices(gpus[:1], 'GPU')\nhvd.init()",
    )
    + """
try:
    hvd.allreduce(on_gpu([1.0]), name="x")
except tf.errors.OpError as error:
    print(error.message)
hvd.shutdown()  # or the rank that ends first, with an error, would end the other
"""
)


@pytest.fixture(scope="module")
def environ(tmp_path_factory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("standins")
    driver = str(build_driver(folder))
    return {
        "TFHVD_CUDA_LIBRARY": driver,
        "TFHVD_NCCL_LIBRARY": driver,
        "TFHVD_TEST_DEVICE": str(build_device(folder)),
        "TFHVD_FAKE_GPUS": "4",
    }


def output(job: mpi.Job) -> list[str]:
    assert job.code == 0, str(job)
    return [rank.out for rank in job.ranks]


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_collective(environ, ranks):
    job = mpi.run_ranks(ranks, COLLECTIVES, env=environ)
    assert output(job) == ["good\n"] * ranks
    said = "each rank uses the one with its local rank's number" in job.ranks[0].err
    assert said == (ranks > 1)


@pytest.mark.parametrize("operations", ["host", "auto"])
def test_by_way_of_the_host_where_there_is_no_nccl(environ, operations):
    without = {**environ, "TFHVD_NCCL_LIBRARY": "", "TFHVD_GPU_OPERATIONS": operations}
    job = mpi.run_ranks(2, COLLECTIVES, env=without)
    assert output(job) == ["good\n"] * 2
    assert ("by way of the host" in job.ranks[0].err) == (operations == "auto")


def test_ranks_that_disagree_on_the_device_hear_of_it(environ):
    for text in output(mpi.run_ranks(2, MIXED, env=environ)):
        assert "device" in text and "rank 0: GPU" in text and "rank 1: CPU" in text, text


def test_two_ranks_on_one_gpu_are_refused(environ):
    for text in output(mpi.run_ranks(2, SAME_GPU, env=environ)):
        assert "ranks 0 and 1 use the same GPU" in text
        assert "set_visible_devices" in text
