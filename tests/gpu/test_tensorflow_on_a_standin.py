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
from tfhvd.ops import _kernels

def check(got, expected):
    assert "GPU:0" in got.device, got.device
    assert got.numpy().tolist() == expected, (got.numpy().tolist(), expected)

ranks = list(range(size))
total = float(sum(ranks))

# The last rank joins before it ever had a tensor on its GPU.
if size > 1 and rank < size - 1:
    check(hvd.allreduce(on_gpu([1.0]), op=hvd.Sum, name="joined"), [size - 1.0])
hvd.join()

for dtype in (tf.float32, tf.bfloat16, tf.float16, tf.float64, tf.int32, tf.int64):
    x = on_gpu([rank, rank + 1, 2], dtype)
    check(hvd.allreduce(x, op=hvd.Sum), [total, total + size, 2 * size])
check(hvd.allreduce(on_gpu([rank, 4.0])), [total / size, 4.0])
check(hvd.allreduce(on_gpu([2.0]), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
      [3.0 * size])
check(hvd.allreduce(on_gpu([float(rank)]), op=hvd.Max), [size - 1.0])
check(hvd.allreduce(on_gpu([float(rank)]), op=hvd.Min), [0.0])
check(hvd.allreduce(on_gpu([2], tf.int32), op=hvd.Average), [2])  # by way of the host
check(hvd.allreduce(on_gpu([3.0, 4.0]), op=hvd.Adasum), [3.0, 4.0])  # of equals: their mean
gathered = [float(r) for r in ranks for _ in range(r + 1)]
check(hvd.allgather(on_gpu([float(rank)] * (rank + 1))), gathered)
check(hvd.allgather(on_gpu([])), [])
for root in ranks:
    check(hvd.broadcast(on_gpu([float(rank)]), root), [float(root)])

rows = size + 1  # the first rank gets two
mine = hvd.reducescatter(on_gpu([[float(r), 1.0] for r in range(rows)]), op=hvd.Sum)
check(mine, [[float(r * size), float(size)] for r in ([0, 1] if rank == 0 else [rank + 1])])
sent = [(rank + r) % 3 for r in ranks]
rows, splits = hvd.alltoall(
    on_gpu([10.0 * rank + r for r in ranks for _ in range(sent[r])]), splits=tf.constant(sent))
check(rows, [10.0 * r + rank for r in ranks for _ in range((r + rank) % 3)])
assert splits.numpy().tolist() == [(r + rank) % 3 for r in ranks]
a, b = hvd.grouped_allreduce([on_gpu([1.0]), on_gpu([[2.0, 3.0]])], op=hvd.Sum)
check(a, [1.0 * size])
check(b, [[2.0 * size, 3.0 * size]])
a, b = hvd.grouped_allgather([on_gpu([rank]), on_gpu([[rank, 2.0]])])
check(a, [float(r) for r in ranks])
check(b, [[float(r), 2.0] for r in ranks])
a, b = hvd.grouped_reducescatter([on_gpu([1.0] * size), on_gpu([[2.0]] * size)], op=hvd.Sum)
check(a, [1.0 * size])
check(b, [[2.0 * size]])

# Communicators per process set, two at once on some ranks.
evens, all_but_last = ranks[::2], ranks[:-1]
for members in (evens, all_but_last) if size > 1 else ():
    some = hvd.add_process_set(members)
    if rank in members:
        got = hvd.allreduce(on_gpu([float(rank)]), op=hvd.Sum, process_set=some)
        check(got, [float(sum(members))])
    hvd.remove_process_set(some)

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

x = on_gpu([1.0]) if rank == 0 else tf.constant([1.0])
with tf.device("/GPU:0" if rank == 0 else "/CPU:0"):
    try:
        assert size == 1 or not hvd.allreduce(x, name="x")
    except tf.errors.InvalidArgumentError as error:
        assert "device" in error.message, error.message
        assert "rank 0: GPU" in error.message and ": CPU" in error.message, error.message
"""
    + """
placed = []  # where gradients are reduced
on_device = _kernels.on_device
_kernels.on_device = lambda name: (placed.append(name), on_device(name))[1]

# Training equals that of one rank with all the data, also where 16 bits travel. What is not a
# collective has no kernel on the stand-in.
def train(x, y, make_tape):
    weights = tf.Variable([0.1, 0.2, 0.3, 0.4])
    for _ in range(10):
        with make_tape() as tape:
            loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, weights) - y))
        gradient = tape.gradient(loss, weights)
        weights.assign_sub(0.1 * gradient)
    return weights.numpy()

with tf.device("/CPU:0"):
    features = tf.reshape(tf.cos(tf.range(64.0 * size)), [-1, 4])
    labels = tf.reduce_sum(features * [1.0, -2.0, 3.0, 0.5], 1) + 1.0
    expected = train(features, labels, tf.GradientTape)
    assert abs(expected - [0.1, 0.2, 0.3, 0.4]).max() > 0.2, expected  # something was learned
    for compression, close in (("none", 1e-5), ("fp16", 2e-2), ("bf16", 8e-2)):
        def make_tape():
            return hvd.DistributedGradientTape(
                tf.GradientTape(), device_dense="/GPU:0",
                compression=getattr(hvd.Compression, compression))
        got = train(features[rank::size], labels[rank::size], make_tape)
        assert abs(got - expected).max() < close, (compression, got, expected)
        assert hvd.allgather(got[None]).numpy().tolist() == [got.tolist()] * size
assert size == 1 or placed.count("/GPU:0") >= 30, placed
print("good")
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
    print(hvd.allreduce(on_gpu([1.0]), name="x").numpy().tolist())
except tf.errors.OpError as error:
    print(error.message)
hvd.shutdown()  # or the rank that ends first, with an error, would end the other
"""
)


# Each rank is a child of what the starter knows of.
KILLED = (
    """
import os, signal, sys, time
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        print("rank 1 was killed by signal", os.WTERMSIG(status), flush=True)
        time.sleep(20)
    os._exit(0)
"""
    + START
    + """
for number in range(1000):
    try:
        total = hvd.allreduce(on_gpu([1.0] * 1000), op=hvd.Sum, name="step").numpy()
    except tf.errors.OpError as error:
        print(type(error).__name__, error.message, flush=True)
        os._exit(0)
    assert (total == size).all()
    if rank == 1 and number == 50:
        os.kill(os.getpid(), signal.SIGKILL)
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


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_collective_and_training(environ, ranks):
    job = mpi.run_ranks(ranks, COLLECTIVES, env=environ, timeout=150)
    assert output(job) == ["good\n"] * ranks
    said = "each rank uses the one with its local rank's number" in job.ranks[0].err
    assert said == (ranks > 1)


def test_by_way_of_the_host_where_there_is_no_nccl(environ):
    job = mpi.run_ranks(2, COLLECTIVES, env={**environ, "TFHVD_NCCL_LIBRARY": ""})
    assert output(job) == ["good\n"] * 2
    assert "by way of the host" in job.ranks[0].err


def test_two_ranks_on_one_gpu_are_refused_unless_it_goes_by_way_of_the_host(environ):
    for text in output(mpi.run_ranks(2, SAME_GPU, env=environ)):
        assert "ranks 0 and 1 use the same GPU" in text
        assert "set_visible_devices" in text
        assert "TFHVD_GPU_OPERATIONS=host" in text
    asked = {**environ, "TFHVD_GPU_OPERATIONS": "host"}
    job = mpi.run_ranks(2, SAME_GPU, env=asked)
    assert output(job) == ["[1.0]\n"] * 2
    assert "by way of the host" not in job.ranks[0].err


def test_a_killed_peer_ends_the_others(environ):
    # The starter sees a process that outlives the one that is killed: tfhvd itself must notice.
    before = set(Path("/dev/shm").iterdir())
    job = mpi.run_ranks(2, KILLED, env=environ)
    assert "rank 1 was killed by signal 9" in job.ranks[1].out, job
    assert "AbortedError" in job.ranks[0].out and "rank 1" in job.ranks[0].out, job
    assert not job.left, job
    mpi.wait_for(lambda: set(Path("/dev/shm").iterdir()) <= before, 30)
