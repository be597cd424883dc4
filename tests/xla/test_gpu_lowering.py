"""Functions with jit_compile=True become the same calls for a GPU as for the CPU.

As far as XLA goes without a GPU; the calls themselves: test_gpu_calls.py.
"""

import pytest
import tensorflow as tf

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


@pytest.mark.skipif(
    not tf.sysconfig.get_build_info()["is_cuda_build"], reason="this TensorFlow knows no GPUs"
)
def test_a_function_becomes_the_same_calls(monkeypatch):
    @tf.function(jit_compile=True)
    def f(x, rows):
        w = tf.ones([4])
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            tape.watch(w)
            loss = tf.reduce_sum(w * x) ** 2
        results = [
            tape.gradient(loss, w),
            hvd.allgather(rows),
            hvd.broadcast(rows, 0),
            hvd.reducescatter(rows),
            hvd.alltoall(rows),
            *hvd.grouped_allreduce([x, rows]),
        ]
        for _ in tf.range(3):
            x = hvd.allreduce(x, name="in a loop")
        hvd.barrier()
        return x, results

    # As on a machine with a GPU, where TensorFlow's operations look for what is not finite.
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind])
    lower = f.experimental_get_compiler_ir(tf.ones([4]), tf.ones([2 * hvd.size(), 3]))
    hlo = lower("hlo", platform_name="GPU")
    assert hlo == lower("hlo", platform_name="CPU")
    for call in ("tfhvd_begin", "tfhvd_start", "tfhvd_done"):
        assert f'custom_call_target="{call}"' in hlo
