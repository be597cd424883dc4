"""hvd.load_ops: graphs with collectives are loaded in programs that have called none."""

import subprocess
import sys

import pytest
import tensorflow as tf

import tfhvd as hvd

pytestmark = [pytest.mark.ranks(1), pytest.mark.thorough, pytest.mark.variant]

PROGRAM = """
import sys
import tensorflow as tf
import tfhvd as hvd

hvd.load_ops()
model = tf.saved_model.load(sys.argv[1])
hvd.init()
x = tf.constant([2.0])
with tf.GradientTape() as tape:
    tape.watch(x)
    y = model.total(x)
print(f"total {y.numpy()} gradient {tape.gradient(y, x).numpy()}")
"""


def test_a_saved_model_is_loaded_before_the_first_collective(tmp_path):
    model = tf.Module()
    model.total = tf.function(
        lambda x: 3 * hvd.allreduce(x, op=hvd.Sum, name="saved"),
        input_signature=[tf.TensorSpec([1])],
    )
    tf.saved_model.save(model, str(tmp_path))
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "total [6.] gradient [3.]" in ran.stdout


def test_it_may_be_called_at_any_time():
    assert hvd.load_ops() is None
    assert hvd.allreduce(1.0) == 1.0
