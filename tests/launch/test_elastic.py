"""Jobs that go on without the ranks that they lose: ``tfhvdrun --elastic``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import children
import network
import pytest
from launching import EITHER_KERAS, TFHVDRUN, Outcome, environment, launch, script, wait_until_gone
from mpi import wait_for
from variants import also
from with_xla import needs_xla

from tfhvd.launch.errors import UsageError
from tfhvd.launch.options.parse import parse
from tfhvd.launch.state.roster import Roster
from tfhvd.protocol import messages

pytestmark = pytest.mark.usefixtures("preloaded_jobs")


def said(data: bytes | None) -> dict:
    assert data is not None
    [(_, payload)] = messages.Reader().feed(data)
    return messages.read_json(payload)


def members(least: int | None) -> Roster:
    """Of four ranks, which all listen."""
    four = Roster(4, least)
    answers = [four.listens(rank, f"{'abcd'[rank]}:{rank}") for rank in (0, 2, 1, 3)]
    assert [four.ready(rank, "tfhvd 1") for rank in range(4)] == [None] * 4
    assert answers[:3] == [None] * 3
    everything = said(answers[3])
    assert everything["addresses"] == ["a:0", "b:1", "c:2", "d:3"]
    assert everything["elastic"] == (least is not None) and len(everything["salt"]) == 32
    return four


@pytest.mark.thorough
def test_members_are_told_who_is_left():
    four = members(least=2)
    first = said(four.end(1, [0, 2, 3], failed=True))["line"]
    assert re.fullmatch(r"roster 1 0 [0-9a-f]{32} 0=a:0 2=c:2 3=d:3\n", first)
    second = said(four.end(0, [0, 2, 3], failed=True))["line"]  # its end may not be known yet
    assert re.fullmatch(r"roster 2 0 [0-9a-f]{32} 2=c:2 3=d:3\n", second)
    assert second.split()[3] != first.split()[3], "each generation has a secret of its own"
    assert four.end(3, [2], failed=True) is None, "one is too few"
    assert four.lost == {0, 1}


def test_once_a_rank_has_come_to_its_end_the_job_is_one_of_fixed_size():
    four = members(least=1)
    line = said(four.end(2, [0, 1, 3], failed=False))["line"]
    assert line == "over rank 2 has reached the end of its program\n"
    assert four.end(1, [0, 3], failed=False) is None
    assert four.end(0, [3], failed=True) is None and four.lost == set()


def test_a_job_of_fixed_size_loses_nobody():
    four = members(least=None)
    assert four.end(2, [0, 1, 3], failed=True) is None and four.lost == set()


HOSTS = {0: "a", 1: "b", 2: "a", 3: "b", 4: "a"}  # of ranks, by their numbers


def lines(data: bytes | None) -> list[str]:
    return [
        str(messages.read_json(payload)["line"])
        for _, payload in messages.Reader().feed(data or b"")
    ]


def test_who_comes_later_is_let_in_once_all_members_are_ready():
    four = members(least=2)
    assert said(four.comes(4, "e:4", HOSTS)) == {
        "addresses": [],
        "salt": "",
        "elastic": True,
        "hosts": ["a", "b", "a", "b", "a"],
        "place": 4,
    }
    four.comes(5, "f:5", HOSTS | {5: "b"})
    assert lines(four.ready(5, "tfhvd 1")) == ["waiting 1\n"]
    assert lines(four.ready(4, "tfhvd 1")) == ["waiting 2\n"]
    with pytest.raises(ValueError, match="it has tfhvd 2, and the job tfhvd 1"):
        four.ready(6, "tfhvd 2")
    said(four.end(1, [0, 2, 3, 4, 5], failed=True))
    roster, waiting = lines(four.let_in(0))
    assert re.fullmatch(r"roster 2 2 [0-9a-f]{32} 0=a:0 2=c:2 3=d:3 4=e:4 5=f:5\n", roster)
    assert waiting == "waiting 0\n" and four.present == [0, 2, 3, 4, 5] and four.most == 5
    assert four.let_in(0) is None, "it has been asked before"
    after = said(four.end(5, [0, 2, 3, 4], failed=True))["line"]
    assert after.startswith("roster 3 2 "), "of the same admission"


def test_who_comes_is_told_its_place_among_those_that_are_left_and_those_that_come_with_it():
    four = members(least=2)
    said(four.end(1, [0, 2, 3], failed=True))
    hosts = {0: "a", 2: "a", 3: "b", 4: "b", 6: "b", 5: "a"}  # 1 is lost; 4 to 6 come
    told = said(four.comes(5, "f:5", hosts))
    assert (told["place"], told["hosts"]) == (4, ["a", "a", "b", "b", "a", "b"])


def begun(data: bytes | None) -> tuple[dict, list[str]]:
    [(kind, payload), *rest] = messages.Reader().feed(data or b"")
    assert kind == messages.FrameKind.REPLAY_LOG
    return messages.read_json(payload), [str(messages.read_json(each)["line"]) for _, each in rest]


def test_who_waits_for_a_training_that_is_over_goes_on_to_the_next_one():
    four = members(least=2)
    assert four.beginning == b""
    four.comes(4, "e:4", HOSTS)
    four.comes(5, "f:5", HOSTS | {5: "b"})
    assert lines(four.ready(4, "tfhvd 1", 0)) == ["waiting 1\n"]  # before the others begin
    assert begun(four.begun(["a"], 0)) == ({"results": ["a"], "trained": 0}, [])
    assert four.begun(["another rank's"], 0) is None
    assert lines(four.ready(5, "tfhvd 1", 0)) == ["waiting 2\n"]
    told = begun(four.begun(["a", "b"], 1))
    assert told == ({"results": ["a", "b"], "trained": 1}, ["waiting 0\n"])
    assert four.ready(4, "tfhvd 1", 0) is None, "it has not read that yet"
    assert lines(four.ready(5, "tfhvd 1", 1)) == ["waiting 1\n"]
    assert four.comes(6, "g:6", HOSTS | {6: "b"}).endswith(four.beginning)
    roster, _ = lines(four.let_in(0))
    assert roster.endswith(" 3=d:3 5=f:5\n") and four.present == [0, 1, 2, 3, 5]
    assert begun(four.begun(None, 2))[0] == {"results": None, "trained": 2}


def test_the_members_go_on_where_who_waited_is_gone():
    four = members(least=2)
    four.comes(4, "e:4", HOSTS)
    four.ready(4, "tfhvd 1")
    assert lines(four.end(4, [0, 1, 2, 3], failed=True)) == ["waiting 0\n"]
    roster, _ = lines(four.let_in(0))
    assert re.fullmatch(r"roster 1 1 [0-9a-f]{32} 0=a:0 1=b:1 2=c:2 3=d:3\n", roster)
    assert four.lost == {4}


def test_nobody_is_let_in_or_done_without_after_so_many_changes():
    four = Roster(2, 1, most_changes=1)
    for rank in range(2):
        four.listens(rank, f"{'ab'[rank]}:{rank}")
        four.ready(rank, "x")
    four.comes(2, "c:2", HOSTS)
    four.ready(2, "x")
    assert four.may_change and len(lines(four.let_in(0))) == 2
    assert not four.may_change and four.end(0, [1, 2], failed=True) is None
    assert four.lost == set()


def test_options():
    job = parse(["-np", "4", "--elastic", "true"])
    assert (job.elastic, job.min_np, job.transport) == (True, 1, "tcp")
    job = parse(["-np", "4", "--min-np", "2", "true"])
    assert (job.elastic, job.min_np, job.transport) == (True, 2, "tcp")
    assert not parse(["-np", "4", "true"]).elastic
    assert parse(["-np", "4", "--evict-after", "30", "true"]).elastic
    for line, says in (
        ("-np 2 --elastic --transport mpi true", "exclude each other"),
        ("-np 2 --min-np 3 true", "--min-np 3 is more than the 2 ranks"),
    ):
        with pytest.raises(UsageError, match=says):
            parse(line.split())


LOOP = """
import threading
import tensorflow as tf
import tfhvd as hvd
hvd.init()
start, victims = hvd.rank(), [int(n) for n in sys.argv[1].split(",")]
seen = []
hvd.on_membership_change(lambda: seen.append((hvd.rank(), hvd.size())))

@tf.function(jit_compile=sys.argv[2] == "compiled")
def step(value):
    return [hvd.allreduce(tf.fill([size], value), op=hvd.Sum, name=f"gradient{size}")
            for size in (3, 1000, 300_000)]

sums = []
for number in range(300):
    if start in victims and number == 100 + 20 * victims.index(start):
        DEED
    parts = step(tf.constant(2.0 ** start))
    for part in parts:
        tf.debugging.assert_equal(part, tf.fill(part.shape, part[0]))
    sums.append([float(part[0]) for part in parts])
rows = hvd.allgather(tf.constant(sums)[tf.newaxis]).numpy()
assert (rows == rows[0]).all(), "survivors have other results than each other"
print(f"{start}: rank {hvd.rank()} of {hvd.size()}, {len(sums)} steps, "
      f"sums {sorted({sum for row in sums for sum in row})}\\n", end="", flush=True)
assert seen[-1] == (hvd.rank(), hvd.size()), seen
hvd.shutdown()
# One that came back from the core while the interpreter ends would abort the process.
assert "tfhvd-members" not in [thread.name for thread in threading.enumerate()]
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
HANG = "open(f'{__file__}.now', 'w').close(); time.sleep(600)"


# Without TensorFlow, which takes its time to start.
MEETS = """
import tfhvd as hvd
from tfhvd.runtime.native import load_native
hvd.init()
start = hvd.rank()
for number in range(300):
    if start == int(sys.argv[1]) and number == 100:
        DEED
    load_native().join()
print(f"{start}: 300 steps\\n", end="", flush=True)
"""


def run(
    tmp_path: Path,
    size: int,
    victims: str,
    way: str,
    deed: str,
    *words: object,
    program: str = LOOP,
) -> Outcome:
    path = script(tmp_path, program.replace("DEED", deed))
    words = ("--elastic", "--no-prefix", "-np", size, *words, sys.executable, path, victims, way)
    result = launch(*words, timeout=120, cwd=tmp_path)  # where a verdict is written
    assert wait_until_gone(str(path)) == []
    return result


@pytest.mark.parametrize(
    ("size", "victims", "way"),
    [
        (2, "0", "graph"),
        pytest.param(3, "2", "compiled", marks=[needs_xla, pytest.mark.thorough]),
        pytest.param(4, "0,1", "graph", marks=pytest.mark.thorough),
        pytest.param(4, "3,0,2", "compiled", marks=[needs_xla, pytest.mark.thorough]),
    ],
)
def test_no_step_is_lost_where_ranks_are_killed(tmp_path, size, victims, way):
    result = run(tmp_path, size, victims, way, KILL)
    assert result.code == 0, result.err
    lost = [int(number) for number in victims.split(",")]
    left = [number for number in range(size) if number not in lost]
    sums, whole = [], float(2**size - 1)
    for number in [None, *lost]:
        whole -= 0 if number is None else 2.0**number
        sums.append(whole)
    assert sorted(result.out.splitlines()) == [
        f"{start}: rank {rank} of {len(left)}, 300 steps, sums {sorted(sums)}"
        for rank, start in enumerate(left)
    ]
    for count, number in enumerate(lost, 1):
        assert (
            f"tfhvdrun: rank {number} on host " in result.err
            and f"the job continues with {size - count} of {size} ranks" in result.err
        ), result.err


# What is traced for three ranks divides by two once there are two. Each rank brings one row, of 6.
SHARES = """
import tensorflow as tf
import tfhvd as hvd
hvd.init()
start = hvd.rank()
large, small = tf.Variable(tf.zeros([1000, 1])), tf.Variable(tf.zeros([3, 1]))
dense, own = tf.Variable(tf.zeros([8])), tf.Variable(0.0)
compression = hvd.Compression.topk(1.0, 1)
compression.build([dense])

@tf.function
def step():
    sliced = hvd.allreduce(tf.IndexedSlices([[6.0]], [start], [3, 1]), name="slices")
    with tf.GradientTape(persistent=True) as tape:
        losses = [6.0 * tf.reduce_sum(tf.gather(table, [start])) for table in (large, small)]
        losses += [6.0 * tf.reduce_sum(dense), 6.0 * own]
    def reduced(loss, variable, **options):
        of_ranks = hvd.DistributedGradientTape(tape, **options)
        if variable is own:
            of_ranks.register_local_source(own)
        return of_ranks.gradient(loss, [variable])[0]
    rows, whole = (reduced(losses[n], (large, small)[n]) for n in (0, 1))
    top = reduced(losses[2], dense, compression=compression)
    return sliced.values, rows.values, whole.values, top, reduced(losses[3], own)

for number in range(60):
    if start == 1 and number == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    sliced, rows, whole, top, local = step()
    for values in (sliced, rows):
        tf.debugging.assert_near(values, tf.fill([len(values), 1], 6.0 / len(values)))
    tf.debugging.assert_near(top, tf.fill([8], 6.0))
    assert [len(each) for each in hvd.allgather_object("x" * start)] in ([0, 1, 2], [0, 2])
    if number < 15 or number > 25:
        size = hvd.size()
        assert len(sliced) == len(rows) == len(whole) == size, (sliced, rows, whole)
        tf.debugging.assert_near(whole, tf.fill([size, 1], 6.0 / size))
        tf.debugging.assert_near(local, 6.0 / size)
print(f"rank {hvd.rank()} of {hvd.size()} is done\\n", end="", flush=True)
"""


@pytest.mark.thorough
def test_averages_are_of_the_ranks_that_take_part(tmp_path):
    result = launch("-np", 3, "--elastic", "--no-prefix", sys.executable, script(tmp_path, SHARES))
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == [f"rank {rank} of 2 is done" for rank in (0, 1)]


@pytest.mark.thorough
def test_a_rank_that_raises_is_lost_like_one_that_is_killed(tmp_path):
    result = run(tmp_path, 3, "1", "graph", "raise ValueError('bad record')", program=MEETS)
    assert result.code == 0, result.err
    assert result.out.count("300 steps") == 2
    assert "rank 1 on host" in result.err and "ValueError: bad record" in result.err
    assert "exit code 1; the job continues with 2 of 3 ranks" in result.err


def test_a_rank_that_is_gone_without_a_goodbye_is_lost_whatever_its_exit_code(tmp_path):
    result = run(tmp_path, 3, "1", "graph", "os._exit(0)", program=MEETS)
    assert result.code == 0, result.err
    assert result.out.count("300 steps") == 2
    lost = (
        r"rank 1 on host .*: exit code 0 without hvd\.shutdown\(\); the job continues with 2 of 3"
    )
    assert re.search(lost, result.err), result.err


def test_with_too_few_ranks_the_job_ends_as_one_of_fixed_size(tmp_path):
    result = run(tmp_path, 2, "1", "graph", KILL, "--min-np", 2, program=MEETS)
    assert result.code == 137, result.err
    assert "continues" not in result.err
    assert "rank 1 on host" in result.own_lines[0] and "failed first" in result.own_lines[0]


@pytest.mark.thorough
def test_after_so_many_changes_the_next_loss_ends_the_job(tmp_path):
    result = run(tmp_path, 3, "2,1", "graph", KILL, "--reset-limit", 1)
    assert result.code == 128 + signal.SIGKILL, result.err
    assert "the job continues with 2 of 3 ranks" in result.err
    assert "the job continues with 1 of 3 ranks" not in result.err
    assert re.search(r"rank 1 on host .* failed first: killed by SIGKILL", result.err), result.err


def test_where_all_raise_the_job_fails(tmp_path):
    path = script(tmp_path, "import tfhvd as hvd\nhvd.init()\nraise ValueError('a bug')\n")
    result = launch("--elastic", "-np", 3, sys.executable, path)
    assert result.code == 1, result.err
    assert "ValueError: a bug" in result.err
    assert wait_until_gone(str(path)) == []


FIT = (
    EITHER_KERAS
    + """
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
start = hvd.rank()
keras.utils.set_random_seed(1 + start)
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.build((None, 4))
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-2))
model.compile(optimizer, loss="mse", metrics=["mae"], jit_compile=sys.argv[2] == "compiled")
x = np.random.rand(640, 4).astype("float32")

class Kill(keras.callbacks.Callback):
    batches = 0
    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.batches == 50 and start == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

kill = Kill()
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0),
             hvd.callbacks.MetricAverageCallback(), kill]
history = model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=3, verbose=0,
                    callbacks=callbacks)
weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
every = hvd.allgather(tf.constant(weights)[tf.newaxis]).numpy()
assert (every == every[0]).all(), "weights differ"
assert hvd.check_divergence(model.trainable_variables) == []
assert int(optimizer.iterations.numpy()) == kill.batches == 120
assert history.history["loss"][-1] < history.history["loss"][0]
print(f"{start}: rank {hvd.rank()} of {hvd.size()}\\n", end="", flush=True)
"""
)


@pytest.mark.parametrize(
    ("package", "way", "victim"),
    [
        ("keras", "graph", 0),
        pytest.param("keras", "compiled", 1, marks=[needs_xla, pytest.mark.thorough]),
        pytest.param("tf_keras", "graph", 2, marks=pytest.mark.thorough),
    ],
)
def test_fit_goes_on(tmp_path, package, way, victim):
    path = script(tmp_path, FIT)
    words = ("--elastic", "--no-prefix", "-np", 3, sys.executable, path, package, way, victim)
    result = launch(*words, timeout=120)
    assert result.code == 0, result.err
    left = [number for number in range(3) if number != victim]
    assert sorted(result.out.splitlines()) == [
        f"{start}: rank {rank} of 2" for rank, start in enumerate(left)
    ]
    assert wait_until_gone(str(path)) == []


STOP = "os.kill(os.getpid(), signal.SIGSTOP)"


@pytest.mark.parametrize(
    ("deed", "says"),
    [
        (STOP, "stopped (SIGSTOP), and killed because it did not continue"),
        pytest.param(HANG, "tfhvdrun: --evict-after: rank 0 killed", marks=pytest.mark.thorough),
    ],
)
def test_a_rank_that_keeps_the_others_is_evicted(tmp_path, deed, says):
    # Who waits for a rank to join waits for as long as that rank is at work, or sleeps.
    program = LOOP if deed == HANG else MEETS
    result = run(tmp_path, 3, "0", "graph", deed, "--evict-after", 2, program=program)
    assert result.code == 0, result.err
    assert result.out.count("300 steps") == 2
    assert says in result.err and "the job continues with 2 of 3 ranks" in result.err


@pytest.mark.thorough
@pytest.mark.parametrize("deed", ["killed", "cut off", "cut off from the next"])
def test_the_loss_of_a_host(tmp_path, deed):
    """All that runs there is killed, and so is what has started it; or nothing reaches it.

    The last: after the launcher's supervisor was killed, and another one has taken its place.
    """
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    path = script(tmp_path, LOOP.replace("DEED", HANG))
    with network.hosts(2) as net:
        words = ["--elastic", "--no-prefix", *net.tfhvdrun(2)]
        with subprocess.Popen(
            [*net.run_on(0), *TFHVDRUN, *words, sys.executable, str(path), "2", "graph"],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as job:
            wait_for((tmp_path / "script.py.now").exists)
            if deed == "cut off from the next":
                os.kill(children.supervisor_of(job.pid), signal.SIGKILL)
                time.sleep(1)  # the job continues
                assert children.supervisor_of(job.pid) != 0
            if deed.startswith("cut off"):
                net.cut_off(1)
            else:
                net.kill_all(1)
            out, errors = job.communicate(timeout=100)
    assert job.returncode == 0, errors
    lines = sorted(out.splitlines())
    assert [line.split(",")[0] for line in lines] == ["0: rank 0 of 2", "1: rank 1 of 2"], errors
    assert all("300 steps" in line for line in lines)
    assert wait_until_gone(str(path)) == []


COMPILED_GATHER = """
import tensorflow as tf
import tfhvd as hvd
hvd.init()
start = hvd.rank()

@tf.function(jit_compile=True)
def gathered(value):
    return hvd.allgather(value, name="rows")

tf.debugging.assert_equal(gathered(tf.fill([2, 1], 1.0)), tf.ones([6, 1]))
if start == 1:
    os.kill(os.getpid(), signal.SIGKILL)
while hvd.size() == 3:
    time.sleep(0.01)
try:
    gathered(tf.fill([2, 1], 1.0))
except tf.errors.AbortedError as error:
    assert "2 ranks take part in allgather 'rows' of a compiled function" in str(error), error
    print(f"rank {start} has seen it\\n", end="", flush=True)
tf.debugging.assert_equal(hvd.allgather(tf.ones([2, 1]), name="eager"), tf.ones([4, 1]))
"""


@needs_xla
def test_a_compiled_allgather_with_fewer_ranks_is_an_error(tmp_path):
    path = script(tmp_path, COMPILED_GATHER)
    result = launch("--elastic", "--no-prefix", "-np", 3, sys.executable, path)
    assert result.code == 0, result.err
    lines = ["rank 0 has seen it", "rank 2 has seen it"]
    assert sorted(result.out.splitlines()) == lines, result.err


SAVES = """
import keras
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
start = hvd.rank()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
compression = hvd.Compression.powersgd(rank=1)
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), compression=compression), "mse")
x = np.random.default_rng(start).random((32, 4)).astype("float32")

class Dies(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1 and start == 0:
            os.kill(os.getpid(), signal.SIGKILL)

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0),
             hvd.callbacks.ModelCheckpoint(sys.argv[1]), Dies()]
model.fit(x, x.sum(1, keepdims=True), batch_size=8, epochs=5, verbose=0, callbacks=callbacks)
hvd.barrier()
fresh = hvd.Compression.powersgd(rank=1)
hvd.load_model(sys.argv[1], compression=fresh)
own = [value.numpy() for value in compression.left_out]
same = [np.array_equal(a, b) for a, b in zip(own, fresh.left_out)]
print(f"rank {hvd.rank()} of {hvd.size()}: {any(map(np.any, own))} {same}\\n", end="", flush=True)
"""


@pytest.mark.thorough
def test_what_compressions_have_left_out_is_saved_under_the_numbers_of_those_that_are_left(
    tmp_path,
):
    path = script(tmp_path, SAVES)
    words = ("--elastic", "--no-prefix", "-np", 3, sys.executable, path, tmp_path / "m.keras")
    result = launch(*words, timeout=90)
    assert result.code == 0, result.err
    lines = [f"rank {rank} of 2: True [True]" for rank in range(2)]
    assert sorted(result.out.splitlines()) == lines, result.err
    assert wait_until_gone(str(path)) == []


WRITES = (
    EITHER_KERAS
    + """
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
start, folder = hvd.rank(), sys.argv[2]
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
model.build((None, 1))
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
x = np.ones((16, 1), "float32")

class Train(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        # Losses of 4, 1, 4, 4, 0: the best ones are those of the second and the last epoch.
        weight = model.trainable_variables[0]
        weight.assign([[float([0, 1, 0, 0, 2][epoch])]])
    def on_train_batch_end(self, batch, logs=None):
        if self.epoch == 2 and start == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    def on_epoch_end(self, epoch, logs=None):
        self.epoch = epoch + 1
    epoch = 0

last = hvd.callbacks.ModelCheckpoint(f"{folder}/last.weights.h5", save_weights_only=True)
best = hvd.callbacks.BestModelCheckpoint(
    "loss", mode="min", filepath=f"{folder}/{{epoch}}.weights.h5", save_weights_only=True)
callbacks = [Train(), hvd.callbacks.BroadcastGlobalVariablesCallback(0),
             hvd.callbacks.MetricAverageCallback(), hvd.callbacks.CSVLogger(f"{folder}/log.csv"),
             hvd.callbacks.TensorBoard(folder), hvd.callbacks.MetricsCallback(folder), last, best]
model.fit(x, 2 * x, batch_size=8, epochs=5, verbose=0, callbacks=callbacks)
hvd.barrier()
if hvd.rank() == 0:
    model.load_weights(f"{folder}/last.weights.h5")
    print(model.get_weights()[0].item(), best.best, flush=True)
"""
)


@pytest.mark.parametrize("package", ["keras", also("tf_keras")])
def test_what_the_first_rank_writes_the_next_one_goes_on_with(tmp_path, package):
    path = script(tmp_path, WRITES)
    folder = tmp_path / "written"
    folder.mkdir()
    words = ("--elastic", "--no-prefix", "-np", 3, sys.executable, path, package, folder)
    result = launch(*words, timeout=120)
    assert result.code == 0, result.err
    assert result.out.splitlines() == ["2.0 0.0"], result.err
    log = [line.split(",")[0] for line in (folder / "log.csv").read_text().splitlines()]
    assert log == ["epoch", "0", "1", "2", "3", "4"], result.err
    saved = sorted(file.name for file in folder.glob("?.weights.h5"))
    assert saved == ["1.weights.h5", "2.weights.h5", "5.weights.h5"], result.err
    for kind in ("train", "tfhvd"):
        assert len(list((folder / kind).glob("events.*"))) == 2, result.err  # one of each rank
    assert wait_until_gone(str(path)) == []


ROOT_IS_LOST = """
import tensorflow as tf
import tfhvd as hvd
hvd.init()
start, weight = hvd.rank(), tf.Variable(0.0)
state = hvd.elastic.TensorFlowState([weight], step=0)
seen = []

@hvd.elastic.run
def train(state):
    seen.append(state.step)
    while state.step < 20:
        weight.assign_add(hvd.allreduce(1.0, name="gradient"))
        state.step += 1
        if state.step == 13 and hvd.size() == 3:
            if start == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.broadcast_object("an epoch's order", 0)
        if state.step % 5 == 0:
            state.commit()

train(state)
print(f"{start}: rank {hvd.rank()} of {hvd.size()}, from {seen}, weight {weight.numpy():g}\\n",
      end="", flush=True)
"""


def test_all_go_back_to_the_last_commit_where_nobody_has_the_data_of_a_broadcast(tmp_path):
    path = script(tmp_path, ROOT_IS_LOST)
    result = launch("--elastic", "--no-prefix", "-np", 3, sys.executable, path, timeout=120)
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == [
        f"{start}: rank {start - 1} of 2, from [0, 10], weight 20" for start in (1, 2)
    ]
    assert wait_until_gone(str(path)) == []


HOROVODS = """
import numpy as np
import tensorflow as tf
import horovod.tensorflow.keras as hvd
hvd.init()
start = hvd.rank()
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.build((None, 4))
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01 * hvd.size()))
model.compile(optimizer, loss="mse")
x = np.ones((40, 4), np.float32)
state = hvd.elastic.KerasState(model, epoch=0)
sizes = []
state.register_reset_callbacks([lambda: sizes.append(hvd.size())])

class Kill(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if start == 0 and state.epoch == 1 and batch == 3:
            os.kill(os.getpid(), signal.SIGKILL)

@hvd.elastic.run
def train(state):
    callbacks = [hvd.elastic.CommitStateCallback(state, 2),
                 hvd.elastic.UpdateEpochStateCallback(state), Kill()]
    model.fit(x, x[:, :1], batch_size=4, epochs=4 - state.epoch, callbacks=callbacks, verbose=0)

train(state)
print(f"{start}: rank {hvd.rank()} of {hvd.size()}, {state.epoch} epochs, reset {sizes}\\n", end="",
      flush=True)
"""


@pytest.mark.thorough
def test_a_script_of_horovods_elastic_api(tmp_path):
    path = script(tmp_path, HOROVODS)
    words = ("--elastic", "--as-horovod", "--no-prefix", "-np", 3, sys.executable, path)
    result = launch(*words, timeout=120)
    assert result.code == 0, result.err
    expected = [f"{start}: rank {start - 1} of 2, 4 epochs, reset [2]" for start in (1, 2)]
    assert sorted(result.out.splitlines()) == expected
    assert wait_until_gone(str(path)) == []
