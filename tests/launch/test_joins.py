"""Ranks that come to a job later, and in the place of lost ones: ``tfhvdrun --max-np``."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import network
import pytest
from launching import (
    EITHER_KERAS,
    TAPE_MODEL,
    TFHVDRUN,
    environment,
    grown,
    launch,
    read_until,
    script,
    started,
    wait_until_gone,
)
from with_xla import needs_xla

pytestmark = pytest.mark.usefixtures("preloaded_jobs")

THOROUGH_COMPILED = [needs_xla, pytest.mark.thorough]

# It goes on until four ranks have taken part, one of which is lost, and then until step 100.
LOOP = """
import tensorflow as tf
import tfhvd as hvd
hvd.init()
weight, most = tf.Variable(0.0), int(sys.argv[1])
state = hvd.elastic.TensorFlowState([weight], step=0, changes=[])
changes = []
hvd.on_membership_change(lambda: changes.append(hvd.size()))

@tf.function(jit_compile=sys.argv[2] == "compiled")
def gradients():
    return [hvd.allreduce(tf.fill([size], 1.0), name=f"gradient{size}") for size in (3, 300_000)]

@hvd.elastic.run
def train(state):
    state.changes.append(hvd.size())
    end = state.step + 100
    while len(state.changes) < most or state.step < end:
        for value in gradients():
            tf.debugging.assert_equal(value, tf.ones_like(value))
        weight.assign_add(1.0)
        state.step += 1
        if state.step % 5 == 0:
            state.commit()
        if len(state.changes) == 2 and state.step == end - 50 and hvd.rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)

train(state)
assert weight.numpy() == state.step, (weight.numpy(), state.step)
rows = hvd.allgather(tf.constant([[float(state.step), weight.numpy()]])).numpy()
assert (rows == rows[0]).all(), rows
print(f"rank {hvd.rank()} of {hvd.size()}, sizes {state.changes}\\n", end="", flush=True)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["graph", pytest.param("compiled", marks=needs_xla)])
def test_ranks_come_and_lost_ones_are_replaced(tmp_path, way):
    result = grown(tmp_path, LOOP, 4, way)
    # Two, three, without rank 0 two, and three again.
    assert sorted(result.out.splitlines()) == [
        f"rank {rank} of 3, sizes [2, 3, 2, 3]" for rank in range(3)
    ]
    for line in (
        "tfhvdrun: rank 2 joins; the job continues with 3 ranks",
        "the job continues with 2 of 3 ranks",
        "tfhvdrun: rank 3 joins; the job continues with 3 ranks",
    ):
        assert line in result.err, result.err


PLAIN_FIT = (
    EITHER_KERAS
    + """
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
start = hvd.rank()
keras.utils.set_random_seed(1 + os.getpid())
model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01 * hvd.size()))
model.compile(optimizer, loss="mse", jit_compile=sys.argv[2] == "compiled")
x = np.random.default_rng(1).random((64, 4)).astype("float32")
y = x.sum(1, keepdims=True)
changes = []

class Watch(keras.callbacks.Callback):
    # Rank 0 is killed three epochs after another one has come; three after the next one all stop.
    sizes, since = [], 0
    def see(self):
        if self.sizes[-1:] != [hvd.size()]:
            self.sizes.append(hvd.size())
            self.since = 0
    def on_epoch_begin(self, epoch, logs=None):
        self.see()
        self.since += 1
        if self.sizes == [2, 3] and start == 0 and self.since == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    def on_train_batch_end(self, batch, logs=None):
        self.see()  # the next rank may come before another epoch begins
        time.sleep(0.01)
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = self.sizes == [2, 3, 2, 3] and self.since == 3

def scale(model, before, after):
    changes.append((before, after))
    rate = model.optimizer.learning_rate
    rate.assign(rate * after / before)

watch = Watch()
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0),
             hvd.callbacks.MetricAverageCallback(), hvd.callbacks.ElasticCallback(scale), watch]
history = model.fit(x, y, validation_data=(x, y), batch_size=8, epochs=10**6, verbose=0,
                    callbacks=callbacks)
weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
every = hvd.allgather(tf.constant(weights)[tf.newaxis]).numpy()
assert (every == every[0]).all(), "weights differ"
assert hvd.check_divergence([*model.variables, *optimizer.variables]) == []
last = hvd.allgather(tf.constant([[history.epoch[-1], 8 * history.epoch[-1] + 8]])).numpy()
assert (last == last[0]).all() and int(optimizer.iterations.numpy()) == last[0, 1], last
rate = float(np.asarray(model.optimizer.learning_rate))
print(f"rank {hvd.rank()} of {hvd.size()}, rate {rate:.3f}, sizes {watch.sizes}, {changes}\\n",
      end="", flush=True)
"""
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("package", "way"),
    [
        ("keras", "graph"),
        pytest.param("keras", "compiled", marks=THOROUGH_COMPILED),
        pytest.param("tf_keras", "graph", marks=pytest.mark.thorough),
    ],
)
def test_ranks_come_to_a_script_as_it_is_between_two_epochs(tmp_path, package, way):
    result = grown(tmp_path, PLAIN_FIT, package, way)
    assert sorted(result.out.splitlines()) == [
        "rank 0 of 3, rate 0.030, sizes [2, 3, 2, 3], [(2, 3), (3, 2), (2, 3)]",
        "rank 1 of 3, rate 0.030, sizes [3, 2, 3], [(3, 2), (2, 3)]",
        "rank 2 of 3, rate 0.030, sizes [3], []",
    ], result.err
    assert "learning rate" not in result.err, result.err


OF_A_TAPE = (
    PLAIN_FIT.replace("keras.Sequential(", "OfATape(")
    .replace("hvd.DistributedOptimizer(keras.optimizers.Adam(0.01 * hvd.size()))", "plain")
    .replace(
        "start = hvd.rank()",
        """start = hvd.rank()
plain = keras.optimizers.Adam(0.01 * hvd.size())
"""
        + TAPE_MODEL,
    )
)
# Nobody but this rank trains it.
ITS_OWN_MODEL = """os.environ["TFHVD_CHECK_SYNC"] = "off"
hvd.init()
alone = keras.Sequential([keras.layers.Dense(1)])
alone.compile("sgd", "mse")
alone.fit(np.ones([4, 2]), np.ones([4, 1]), epochs=2, verbose=0)
assert int(hvd.broadcast(7 if hvd.rank() == 0 else -1, 0)) == 7
"""


@pytest.mark.thorough
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.parametrize("way", ["arrays", "read once", "its own first"])
def test_ranks_come_to_a_fit_that_no_optimizer_tells_from_others(tmp_path, package, way):
    """A tape reduces its gradients, as the first step shows; or another one comes before it."""
    program = PLAIN_FIT if way == "its own first" else OF_A_TAPE
    if way == "its own first":
        program = program.replace("hvd.init()\n", ITS_OWN_MODEL)
    elif way == "read once":
        batches = "((x[i:i + 8], y[i:i + 8]) for _ in range(10**6) for i in range(0, 64, 8))"
        program = program.replace("fit(x, y,", f"fit({batches}, steps_per_epoch=8,")
        program = program.replace("batch_size=8,", "validation_batch_size=8,")
    result = grown(tmp_path, program, package, "graph")
    assert sorted(result.out.splitlines()) == [
        "rank 0 of 3, rate 0.030, sizes [2, 3, 2, 3], [(2, 3), (3, 2), (2, 3)]",
        "rank 1 of 3, rate 0.030, sizes [3, 2, 3], [(3, 2), (2, 3)]",
        "rank 2 of 3, rate 0.030, sizes [3], []",
    ], result.err


# As where the thread gets no processor: by then its engine has gone on with who has come.
NOTICES_LATE = """
import tfhvd as hvd
from tfhvd.ops import admission
hvd.init()
come_to, is_late = admission.come_to, hvd.rank() == 1

def come_late(where):
    come_to(where)
    if is_late and where == "admission_agreed":
        time.sleep(1)

admission.come_to = come_late
state = hvd.elastic.ObjectState(steps_of_three=0)

@hvd.elastic.run
def train(state):
    while state.steps_of_three < 10:
        state.steps_of_three += int(hvd.allreduce(1.0, op=hvd.Sum, name="ranks")) == 3
        state.commit()
        time.sleep(0.01)

train(state)
print(f"rank {hvd.rank()} of {hvd.size()}\\n", end="", flush=True)
"""


def test_a_member_that_notices_late_who_has_come_does_not_wait_for_more(tmp_path):
    result = grown(tmp_path, NOTICES_LATE, timeout=60)
    assert sorted(result.out.splitlines()) == [f"rank {rank} of 3" for rank in range(3)]


@pytest.mark.thorough
def test_a_rank_comes_to_the_last_one_that_is_left(tmp_path):
    text = PLAIN_FIT.replace("[2, 3, 2, 3]", "[2, 1, 2]").replace("[2, 3] and", "[2] and")
    path = script(tmp_path, text)
    words = ("-np", 2, "--max-np", 2, "--no-prefix", sys.executable, path, "keras", "graph")
    result = launch(*words, timeout=150)
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == [
        "rank 0 of 2, rate 0.020, sizes [2, 1, 2], [(2, 1), (1, 2)]",
        "rank 1 of 2, rate 0.020, sizes [2], []",
    ], result.err
    assert wait_until_gone(str(path)) == []


FROM_ONE = (
    EITHER_KERAS
    + """
from pathlib import Path
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
began_with, epochs_of_two = hvd.size(), []
keras.utils.set_random_seed(1 + os.getpid())
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
x, y = tf.random.uniform([16, 2]), tf.random.uniform([16, 1])

class Until(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.05)
        if epoch == 2 and began_with == 1:
            Path(sys.argv[2]).write_text("localhost slots=2\\n")
        if hvd.size() == 2:
            epochs_of_two.append(epoch)
        self.model.stop_training = len(epochs_of_two) == 3

model.fit(x, y, batch_size=8, epochs=10**6, verbose=0, callbacks=[Until()])
weights = tf.concat([tf.reshape(weight, [-1]) for weight in model.get_weights()], 0)
every = hvd.allgather(weights[tf.newaxis]).numpy()
assert len(every) == 2 and (every == every[0]).all(), every
print(f"rank {hvd.rank()} of {hvd.size()} began with {began_with}\\n", end="", flush=True)
"""
)


@pytest.mark.thorough
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_rank_comes_to_a_job_that_began_with_one(tmp_path, package):
    path = script(tmp_path, FROM_ONE)
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=1\n")
    words = ("-np", 1, "--min-np", 1, "--max-np", 2, "--hostfile", hosts, "--no-prefix")
    result = launch(*words, sys.executable, path, package, hosts, timeout=100)
    assert result.code == 0, result.err
    lines = ["rank 0 of 2 began with 1", "rank 1 of 2 began with 2"]
    assert sorted(result.out.splitlines()) == lines
    assert wait_until_gone(str(path)) == []


@pytest.mark.thorough
def test_a_rank_comes_to_a_fit_that_has_been_profiled(tmp_path):
    text = PLAIN_FIT.replace(", watch]", ", hvd.callbacks.ProfileCallback(2), watch]")
    result = grown(tmp_path, text, "keras", "graph")
    assert result.out.count("2 steps of 2 ranks, in ms a step:") == 1, result.out
    assert "of 3 ranks, in ms" not in result.out, result.out
    assert result.out.count("rank 2 of 3, rate 0.030, sizes [3], []") == 1, result.out


DIES = """
    def on_train_begin(self, logs=None):
        if start == 2 and not os.path.exists(f"{__file__}.died"):
            open(f"{__file__}.died", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_begin("""


@pytest.mark.thorough
def test_a_rank_that_is_lost_as_soon_as_it_is_let_in(tmp_path):
    result = grown(
        tmp_path, PLAIN_FIT.replace("    def on_epoch_begin(", DIES[1:]), "keras", "graph"
    )
    # The others have not begun an epoch with it.
    assert sorted(result.out.splitlines())[0] == (
        "rank 0 of 3, rate 0.030, sizes [2, 3, 2, 3], [(2, 3), (3, 2), (2, 3)]"
    ), result.err
    assert "rank 2 on host" in result.err and "the job continues with 2 of 3 ranks" in result.err


# What a script may agree on before it trains: whoever comes gets what the others got.
BEFORE = """
first = hvd.broadcast(7 if hvd.rank() == 0 else -1, 0, name="resume_from_epoch")
settings = hvd.broadcast_object({"a": hvd.rank()}, 0)
data = hvd.allreduce(tf.constant(hvd.rank() + 1), op=hvd.Sum)
lengths = hvd.allgather_object([hvd.rank()])
step = tf.Variable(hvd.rank() + 5, dtype=tf.int64)
hvd.broadcast_variables([step], 0)
got = [int(first), settings, int(data), lengths, int(step)]
assert got == [7, {"a": 0}, 3, [[0], [1]], 5], got
"""


# More than is kept for whoever comes, which gets the values where it begins to train.
LARGE_MODEL = """
model.build((None, 4))
hvd.broadcast_variables(model.variables, 0)

"""
LARGE_TABLE = """
table = tf.Variable(tf.fill([1 << 15], float(os.getpid())))
hvd.broadcast_variables([weight, table], 0)
"""
ALIKE = """
rows = hvd.allgather(table[tf.newaxis]).numpy()
assert (rows == rows[0]).all() and rows[0, 0] != 0, rows
"""


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("loop", 4),
        pytest.param("fit", "keras", marks=pytest.mark.thorough),
        pytest.param("fit", "tf_keras", marks=pytest.mark.thorough),
    ],
)
def test_ranks_come_to_a_script_that_agrees_on_something_first(tmp_path, text, word):
    if text == "fit":
        program = PLAIN_FIT.replace("class Watch", BEFORE + LARGE_MODEL + "class Watch")
        program = program.replace("Dense(8,", "Dense(4_000,")
        last = "rank 2 of 3, rate 0.030, sizes [3], []"
    else:
        program = LOOP.replace("state = ", BEFORE + LARGE_TABLE + "state = ", 1)
        program = program.replace("State([weight]", "State([weight, table]") + ALIKE
        last = "rank 2 of 3"
    result = grown(tmp_path, program, word, "graph")
    assert any(line.startswith(last) for line in result.out.splitlines()), result
    assert "joins" in result.err


@pytest.mark.thorough
@pytest.mark.parametrize("text", ["fit", "loop"])
def test_nobody_comes_where_the_others_have_other_values(tmp_path, text):
    """Those of a large variable that is neither of the model nor of a state."""
    before = 'hvd.broadcast_variables([tf.Variable(tf.zeros([1 << 15]), name="table")], 0)'
    if text == "fit":
        program = PLAIN_FIT.replace("class Watch", f"{before}\n\nclass Watch")
        program = program.replace("10**6", "60")
        words, last = ("keras", "graph"), ", rate 0.020, sizes [2], []"
    else:
        program = LOOP.replace("@hvd.elastic.run", f"{before}\n\n@hvd.elastic.run")
        program = program.replace("+ 100", "+ 300").replace("- 50", "- 1000")
        words, last = (1, "graph"), ", sizes [2]"
    result = grown(tmp_path, program, *words)
    assert sorted(result.out.splitlines()) == [f"rank {rank} of 2{last}" for rank in range(2)]
    assert "'broadcast_variables/0.table'" in result.err, result.err
    assert result.err.count("cannot join: before training, the script called a collective") == 1
    assert "joins" not in result.err


@pytest.mark.thorough
@pytest.mark.parametrize(
    "before",
    [
        "hvd.broadcast(tf.zeros([1 << 15]), 0)",
        "hvd.add_process_set([0])",
        "tf.function(lambda: hvd.allreduce(1.0))()",
    ],
)
def test_nobody_comes_to_a_script_that_would_not_meet_them(tmp_path, before):
    """What it does before `fit`, who comes can neither be told nor leave out."""
    program = PLAIN_FIT.replace("class Watch", f"{before}\n\nclass Watch").replace("10**6", "60")
    result = grown(tmp_path, program, "keras", "graph")
    assert sorted(result.out.splitlines()) == [
        f"rank {rank} of 2, rate 0.020, sizes [2], []" for rank in range(2)
    ]
    assert result.err.count("tfhvdrun: rank 2 on host ") == 1, result.err
    assert "cannot join: before training, the script called a collective" in result.err
    assert "joins" not in result.err


@pytest.mark.thorough
def test_a_rank_that_comes_and_begins_otherwise_says_so(tmp_path):
    before = "hvd.broadcast(1, 0, name=str(hvd.size()))\n\nclass Watch"
    program = PLAIN_FIT.replace("class Watch", before).replace("10**6", "30")
    job = ("-np", 2, "--max-np", 3, "--no-prefix", sys.executable, script(tmp_path, program))
    result = launch(*job, "keras", "graph", timeout=100)
    assert result.code == 0, result.err
    assert "calls hvd.broadcast '3' (int32) here, but the others have called" in result.err
    assert "called hvd.broadcast '2' (int32) before they trained" in result.err
    assert "the job continues with 3 ranks" not in result.err


FIT = (
    EITHER_KERAS
    + """
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
keras.utils.set_random_seed(1 + os.getpid())
model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.build((None, 4))
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-2))
model.compile(optimizer, loss="mse")
x = np.random.default_rng(1).random((64, 4)).astype("float32")
state = hvd.elastic.KerasState(model, epoch=0, sizes=[])

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.01)

@hvd.elastic.run
def train(state):
    state.sizes.append(hvd.size())
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                 hvd.callbacks.MetricAverageCallback(), Slow(),
                 hvd.elastic.CommitStateCallback(state, 2),
                 hvd.elastic.UpdateEpochStateCallback(state)]
    while hvd.size() < 3:
        model.fit(x, x.sum(1, keepdims=True), batch_size=8, epochs=state.epoch + 1,
                  initial_epoch=state.epoch, callbacks=callbacks, verbose=0)
    model.fit(x, x.sum(1, keepdims=True), batch_size=8, epochs=state.epoch + 20,
              initial_epoch=state.epoch, callbacks=callbacks, verbose=0)

train(state)
weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
every = hvd.allgather(tf.constant(weights)[tf.newaxis]).numpy()
assert (every == every[0]).all(), "weights differ"
assert hvd.check_divergence([*model.variables, *optimizer.variables]) == []
print(f"rank {hvd.rank()} of {hvd.size()}, sizes {state.sizes}\\n", end="", flush=True)
"""
)


@pytest.mark.thorough
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_rank_comes_to_a_model_that_is_being_trained(tmp_path, package):
    result = grown(tmp_path, FIT, package)
    expected = [f"rank {rank} of 3, sizes [2, 3]" for rank in range(3)]
    assert sorted(result.out.splitlines()) == expected, result.err


ACCUMULATES = (
    EITHER_KERAS
    + """
import tensorflow as tf
import tfhvd.keras as hvd
if sys.argv[2] == "not rehearsed":
    os.environ["TFHVD_REHEARSE"] = "0"
hvd.init()
comes = hvd.size() == 3
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), backward_passes_per_step=4)
optimizer.build(model.trainable_variables)
state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)
calls = []

@tf.function
def train_step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

@hvd.elastic.run
def train(state):
    calls.append(1)
    end = state.step + 40
    while hvd.size() < 3 or state.step < end:
        train_step(tf.ones([1, 2]))
        state.step += 1
        if comes and len(calls) == 1 and sys.argv[2] == "rehearsed":
            over = state.step % 4 == 1
        elif hvd.size() < 3:
            over = state.step % 4 == 2  # in the middle of an update
        else:
            over = state.step % 3 == 0  # never at the same place of one for long
        if over:
            state.commit()
        time.sleep(0.002)

train(state)
updates = float(optimizer.iterations.numpy())
own = [[updates, state.step], *(weight.ravel() for weight in model.get_weights())]
every = hvd.allgather(tf.constant([[float(value) for part in own for value in part]])).numpy()
assert (every == every[0]).all(), every
print(f"rank {hvd.rank()} of {hvd.size()}\\n", end="", flush=True)
"""
)


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["rehearsed", "not rehearsed"])
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_rank_comes_between_two_passes_of_an_update(tmp_path, package, way):
    result = grown(tmp_path, ACCUMULATES, package, way, timeout=90)
    assert sorted(result.out.splitlines()) == [f"rank {rank} of 3" for rank in range(3)]


ROWS = """
import tensorflow as tf
import tfhvd as hvd
if sys.argv[1] == "not rehearsed":
    os.environ["TFHVD_REHEARSE"] = "0"
hvd.init()
table = tf.Variable(tf.zeros([8, 2]))
state = hvd.elastic.TensorFlowState([table], step=0)

@tf.function
def train_step():
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(tf.gather(table, tf.range(8)))
    table.assign_sub(tf.convert_to_tensor(tape.gradient(loss, table)))

@hvd.elastic.run
def train(state):
    end = state.step + 20
    while hvd.size() < 3 or state.step < end:
        train_step()
        state.step += 1
        if state.step % 5 == 0:
            state.commit()
        time.sleep(0.002)

train(state)
tf.debugging.assert_equal(table, tf.fill([8, 2], -float(state.step)))
print(f"rank {hvd.rank()} of {hvd.size()}\\n", end="", flush=True)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["rehearsed", "not rehearsed"])
def test_a_rank_comes_where_rows_travel_as_a_whole(tmp_path, way):
    result = grown(tmp_path, ROWS, way, timeout=90)
    assert sorted(result.out.splitlines()) == [f"rank {rank} of 3" for rank in range(3)]


COMPILED_GATHER = """
import tensorflow as tf
import tfhvd as hvd
hvd.init()
start = hvd.rank()
state = hvd.elastic.ObjectState()
found = []

@tf.function(jit_compile=True)
def gathered(value):
    return hvd.allgather(value, name="rows")

@hvd.elastic.run
def train(state):
    while hvd.size() == 2:
        tf.debugging.assert_equal(gathered(tf.ones([2, 1])), tf.ones([4, 1]))
        state.commit()
        time.sleep(0.01)
    try:
        found.append(f"{len(gathered(tf.ones([2, 1])))} rows")
    except tf.errors.AbortedError as error:
        found.append(re.search(r"[0-9] ranks take part in allgather 'rows'", str(error))[0])

train(state)
tf.debugging.assert_equal(hvd.allgather(tf.ones([2, 1]), name="eager"), tf.ones([6, 1]))
print(f"rank {start}: {found[-1]}\\n", end="", flush=True)
"""


@needs_xla
@pytest.mark.thorough
def test_a_compiled_allgather_with_more_ranks_is_an_error(tmp_path):
    result = grown(tmp_path, "import re\n" + COMPILED_GATHER, timeout=90)
    assert sorted(result.out.splitlines()) == [
        "rank 0: 3 ranks take part in allgather 'rows'",
        "rank 1: 3 ranks take part in allgather 'rows'",
        "rank 2: 6 rows",
    ], result.err


WITHOUT_COMMITS = """
import tfhvd as hvd
hvd.init()
if hvd.size() == 2:
    hvd.broadcast_object(0)  # which the other one does not come to
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
print(f"rank {hvd.rank()} of {hvd.size()}\\n", end="", flush=True)
"""


def test_a_job_that_never_lets_in_who_waits_ends_without_them(tmp_path):
    path = script(tmp_path, WITHOUT_COMMITS)
    words = ("-np", 1, "--max-np", 2, "--no-prefix", sys.executable, path, tmp_path / "end")
    with started(*words) as job:
        read_until(job.stderr, "rank 1 on host .* waits until the other ranks start training")
        (tmp_path / "end").touch()
        assert _end_of(job, path) == ["rank 0 of 1"]


FAILS_LATER = """
import tfhvd as hvd
if os.path.exists(sys.argv[1]):
    if sys.argv[2] == "fails":
        sys.exit("no such dataset")
    hvd.init()
    sys.exit(0)
open(sys.argv[1], "w").close()
hvd.init()
while not os.path.exists(sys.argv[1] + ".end"):
    time.sleep(0.02)
"""


@pytest.mark.parametrize("way", ["fails", pytest.param("ends", marks=pytest.mark.thorough)])
def test_a_rank_that_ends_before_it_is_let_in_harms_nobody(tmp_path, way):
    path = script(tmp_path, FAILS_LATER)
    words = ("-np", 1, "--max-np", 2, "--blacklist-cooldown-range", 3600, 3600)
    with started(*words, sys.executable, path, tmp_path / "there", way) as job:
        read_until(job.stderr, "rank 1 on host .* it had not joined yet; the job continues")
        time.sleep(1)  # for another one to be started, if it were
        (tmp_path / "there.end").touch()
        assert job.stderr is not None
        assert "rank 2" not in job.stderr.read()
        _end_of(job, path)


OTHER_VERSION = """
import tfhvd as hvd
from tfhvd.protocol.variables import rank_of
from tfhvd.runtime import membership
if rank_of(os.environ) > 0:
    membership.__version__ = "99.9"
hvd.init()
state = hvd.elastic.ObjectState()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
    state.commit()
print(f"rank {hvd.rank()} of {hvd.size()}\\n", end="", flush=True)
"""


@pytest.mark.thorough
def test_a_rank_with_another_version_is_not_let_in(tmp_path):
    path = script(tmp_path, OTHER_VERSION)
    words = ("-np", 1, "--max-np", 2, "--no-prefix", sys.executable, path, tmp_path / "end")
    with started(*words) as job:
        read_until(
            job.stderr, r"rank 1 on host .* cannot join: it has tfhvd 99.9 for .*, and the job"
        )
        read_until(job.stderr, "rank 1 on host .* the job continues")
        (tmp_path / "end").touch()
        assert _end_of(job, path) == ["rank 0 of 1"]


STOPS = """
import threading
os.environ["TFHVD_REHEARSE"] = "0"  # it would wait in the function of hvd.elastic.run, as others do
import tfhvd as hvd
from tfhvd.protocol.variables import rank_of

def stop():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGSTOP)

if rank_of(os.environ) == 2:
    threading.Thread(target=stop, daemon=True).start()
hvd.init()
state = hvd.elastic.ObjectState(calls=0)

@hvd.elastic.run
def train(state):
    state.calls += 1
    while not os.path.exists(sys.argv[1] + ".go"):
        time.sleep(0.01)
    while state.calls == 1:
        state.commit()
        time.sleep(0.01)

train(state)
print(f"rank {hvd.rank()} of {hvd.size()}\\n", end="", flush=True)
"""


@pytest.mark.thorough
def test_a_rank_that_is_let_in_and_does_not_come_is_done_without(tmp_path):
    path = script(tmp_path, STOPS)
    words = ("-np", 2, "--max-np", 3, "--no-prefix", sys.executable, path, tmp_path / "stop")
    with started(*words) as job:
        read_until(job.stderr, "rank 2 on host .* waits to join")
        (tmp_path / "stop").touch()
        time.sleep(1)
        (tmp_path / "stop.go").touch()
        read_until(job.stderr, "rank 2 joins; the job continues with 3 ranks")
        read_until(job.stderr, "rank 2 is killed: it did not connect to the other ranks")
        assert _end_of(job, path) == ["rank 0 of 2", "rank 1 of 2"]


def _end_of(job: subprocess.Popen[str], path: Path) -> list[str]:
    """Waits for a job to end well, without leaving anything; returns its lines, sorted."""
    out, errors = job.communicate(timeout=60)
    assert job.returncode == 0, errors
    assert wait_until_gone(str(path)) == []
    return sorted(out.splitlines())


def test_a_script_that_finds_no_hosts(tmp_path):
    found = tmp_path / "hosts.sh"
    found.write_text("#!/bin/sh\n")
    found.chmod(0o755)
    words = ("--host-discovery-script", found, "--min-np", 2, "--elastic-timeout", 0.5, "true")
    result = launch(*words)
    assert result.code == 2
    assert (
        "the hosts that are found have 0 slots after 0.5 s, and --min-np asks for 2" in result.err
    )


def test_a_script_that_finds_hosts_in_time(tmp_path):
    found = tmp_path / "hosts.sh"
    more = tmp_path / "more"
    found.write_text(f"#!/bin/sh\ntest ! -e {more} || echo localhost:2\ntouch {more}\n")
    found.chmod(0o755)
    says = "import tfhvd as hvd; hvd.init(); print(hvd.rank(), 'of', hvd.size())"
    words = ("--host-discovery-script", found, "--min-np", 2, "--elastic-timeout", 60)
    result = launch(*words, "--no-prefix", sys.executable, "-c", says)
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == ["0 of 2", "1 of 2"]


@pytest.mark.thorough
def test_a_host_that_is_found_later(tmp_path):
    """The script prints one host, and then two; the rank on the first one is lost and replaced."""
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    path = script(tmp_path, LOOP)
    with network.hosts(2) as net:
        words = net.tfhvdrun(1)
        at = words.index("-H")
        first, second = words[at + 1].split(",")
        found = tmp_path / "hosts.sh"
        found.write_text(
            f"#!/bin/sh\necho {first}\ntest ! -e {tmp_path}/more || echo {second}\n"
            f"touch {tmp_path}/more\n"
        )
        found.chmod(0o755)
        words[at : at + 2] = ["--host-discovery-script", str(found), "--no-prefix"]
        job = subprocess.run(
            [*net.run_on(0), *TFHVDRUN, *words, sys.executable, str(path), "4", "graph"],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=150,
        )
    assert job.returncode == 0, job.stderr
    expected = [f"rank {rank} of 2, sizes [1, 2, 1, 2]" for rank in range(2)]
    assert sorted(job.stdout.splitlines()) == expected, job.stderr
    assert "rank 1 joins; the job continues with 2 ranks" in job.stderr
    assert wait_until_gone(str(path)) == []
