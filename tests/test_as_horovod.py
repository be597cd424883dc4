"""Scripts for Horovod run as they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import mpi
import pytest
import user_messages

from tfhvd.launch.options.horovod_table import IDLE

with pytest.MonkeyPatch.context() as patch:
    # Importing it would choose a Keras for the tests of other files, too.
    patch.setenv("TF_USE_LEGACY_KERAS", "0")
    from tfhvd import as_horovod

SCRIPT = """
import numpy as np
import tensorflow as tf
import horovod
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import horovod.keras
from horovod.tensorflow.keras.callbacks import MetricAverageCallback
from horovod.tensorflow.compression import Compression
from horovod.common.util import num_rank_is_power_2

hvd.init()
assert hvd.size() == 2 and horovod.keras.rank() == hvd.rank()
assert num_rank_is_power_2(hvd.size())
gpus = tf.config.experimental.list_physical_devices("GPU")
model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
opt = hvd_keras.DistributedOptimizer(
    tf.keras.optimizers.SGD(0.01 * hvd.size()), compression=Compression.fp16
)
model.compile(loss="mse", optimizer=opt, experimental_run_tf_function=False)  # of Keras 2
callbacks = [
    hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
    MetricAverageCallback(),
    hvd_keras.callbacks.LearningRateWarmupCallback(initial_lr=0.02, warmup_epochs=1, verbose=1),
]
random = np.random.default_rng(hvd.rank())
model.fit(random.normal(size=(8, 4)), np.ones((8, 1)), batch_size=4, verbose=0, callbacks=callbacks)

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x))
    tape = hvd.DistributedGradientTape(tape)
    return tape.gradient(loss, model.trainable_variables)

step(tf.ones([2, 4]))
sums = hvd.allgather(tf.reshape(tf.reduce_sum(model.weights[0]), [1]))
assert sums[0] == sums[1], sums
assert len(opt.variables()) > 0  # of Keras 2, too
print("trained on", hvd.__name__)
"""


def test_a_script_for_horovod_as_it_is(tmp_path):
    """Started by a shell script, so that the switch must reach a Python behind another program."""
    train, start = tmp_path / "train.py", tmp_path / "start.sh"
    train.write_text(SCRIPT)
    start.write_text(f"exec {sys.executable} {train}\n")
    launch = ["-m", "tfhvd.launch", "--as-horovod", "-np", "2", "bash", str(start)]
    job = mpi.run_ranks(1, launch, timeout=120, mpirun=False)
    assert job.code == 0, job
    trained = re.findall(r"\[(\d)\] trained on horovod.tensorflow", job.ranks[0].out)
    assert sorted(trained) == ["0", "1"]
    assert job.ranks[0].err.count("tf.keras is Keras 2 here (TF_USE_LEGACY_KERAS=1)") == 1
    assert not job.left


def answers(program: str) -> list[str]:
    """Runs lines after `import tfhvd.as_horovod`; gives what each raises, or "fine"."""
    lines = [line for line in program.splitlines() if line]
    code = f"""
import tfhvd.as_horovod
import sys
for line in {lines!r}:
    try:
        exec(line)
        print("fine")
    except Exception as error:
        print(f"{{type(error).__name__}}: {{error}}")
print("tensorflow" in sys.modules)
"""
    out = subprocess.check_output([sys.executable, "-c", code], cwd=mpi.ROOT, text=True)
    *said, tensorflow = out.splitlines()
    assert tensorflow == "False"  # as with tfhvd itself, it comes with the first operation
    return said


def test_names_that_are_not_there():
    said = answers("""
import horovod, horovod.tensorflow as hvd
assert horovod.__version__ and horovod.run and not hasattr(hvd, "gpu_available")
hvd.gpu_available
from horovod.tensorflow import gpu_available
import horovod.torch
from horovod.spark import run
from horovod.ray import RayExecutor
hvd.alreduce
from horovod.tensorflow import alreduce
import horovod.tensorflow.elastic
hvd.init(); assert hvd.size() == 1; hvd.shutdown()
""")
    expected = [
        "fine",
        "fine",
        "AttributeError: .*no horovod.tensorflow.gpu_available. Use: tf.config.list_physical",
        "ImportError: .*no horovod.tensorflow.gpu_available. Use: tf.config.list_physical",
        "ImportError: .*no horovod.torch. Use: Horovod itself, or torch.distributed",
        "ImportError: .*no horovod.spark",
        "ImportError: .*no horovod.ray",
        "AttributeError: .*The nearest name is allreduce. docs/migrating.md",
        "ImportError: .*The nearest name is allreduce",
        "fine",
        "fine",
    ]
    assert len(said) == len(expected), said
    for actual, pattern in zip(said, expected):
        assert re.match(pattern, actual), actual
    user_messages.check("import horovod.ray", *said)
    user_messages.check("import horovod.spark", *said)


@pytest.mark.thorough
def test_gradients_of_gathers_are_scaled_under_the_names_of_horovod_only():
    code = """
import tfhvd.as_horovod
import horovod.tensorflow as hvd, horovod.tensorflow.mpi_ops as ops, horovod.keras as of_keras
import tfhvd, tfhvd.keras
for name in ("allgather", "broadcast", "grouped_allgather", "grouped_reducescatter"):
    assert getattr(hvd, name) is getattr(ops, name) is not getattr(tfhvd, name), name
    assert getattr(hvd, name).__doc__ == getattr(tfhvd, name).__doc__
assert hvd.allreduce is tfhvd.allreduce and hvd.alltoall is tfhvd.alltoall
assert of_keras.allgather is tfhvd.keras.allgather
"""
    subprocess.run([sys.executable, "-c", code], cwd=mpi.ROOT, check=True)


@pytest.mark.parametrize(
    ("before", "chosen"),
    [
        ("", "1"),
        ("os.environ['TF_USE_LEGACY_KERAS'] = '0'", "0"),
        ("sys.modules['tensorflow'] = sys", None),
        ("import importlib.util; importlib.util.find_spec = lambda name: None", None),
    ],
    ids=["nothing said", "Keras 3 wanted", "too late", "not installed"],
)
def test_which_keras_a_program_gets(before, chosen):
    code = "import os, sys, tfhvd.launch.placement.legacy_keras\n" + before
    code += "\nimport tfhvd.as_horovod\nprint(os.environ.get('TF_USE_LEGACY_KERAS'))"
    command = [sys.executable, "-c", code]
    environ = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    result = subprocess.run(command, cwd=mpi.ROOT, env=environ, capture_output=True, text=True)
    assert result.stdout == f"{chosen}\n", result.stderr
    assert ("tf.keras is Keras 2 here" in result.stderr) == (chosen == "1")


def test_every_difference_is_said_with_its_why():
    text = (mpi.ROOT / "docs/migrating.md").read_text()
    tables = re.findall(r"^\|.*\| why \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", text, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 30
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) == 4 and all(cells), row
    flags = {flag for idle in IDLE for flag in idle.flags}
    unsaid = {flag for flag in flags if f"`{flag}`" not in text}
    kin = ("--autotune", "--no-", "--log-", "-prefix", "--min-num", "--max-num", "--slots")
    assert all(flag.startswith(kin) for flag in unsaid), unsaid


def test_too_late_is_an_error():
    code = "import sys, types; sys.modules['horovod'] = types.ModuleType('horovod')\n"
    code += "import tfhvd.as_horovod"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=mpi.ROOT, capture_output=True, text=True)
    assert result.returncode == 1
    assert "import tfhvd.as_horovod first, or start" in result.stderr


@pytest.mark.parametrize("module", sorted({m for ms in as_horovod.MODULES.values() for m in ms}))
def test_the_shims_lead_to_modules(module):
    import importlib

    assert importlib.import_module(module)
