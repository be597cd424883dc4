"""What must become of an elastic job in which ranks end at failpoints (cc/base/failpoints.h).

A case is one job of `tfhvdrun --elastic`, with real processes. Each place is tried by the ranks of
`ROLES` that come there. A process takes itself to be on the host of its letter.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import shared_memory
from launching import launch, script, wait_until_gone

SECONDS = 240  # for a job to end by itself: a start of TensorFlow for each rank on a busy machine

# Each step adds what the allreduce gave, so that weights tell if a step was lost, or made twice.
# A job that ranks are to come to goes on until there are `most`.
LOOP = """
import json
from tfhvd.protocol.variables import rank_of
start, (hosts, most, way) = rank_of(os.environ), sys.argv[1:]
os.environ["TFHVD_TEST_HOST"] = hosts[min(start, len(hosts) - 1)]
import numpy as np
import tensorflow as tf
import tfhvd as hvd
hvd.init()
began_with, most = hvd.size(), int(most)
weights = [tf.Variable(tf.zeros([size])) for size in (300_000, 3)]
updates = tf.Variable(0, dtype=tf.int64)
state = hvd.elastic.TensorFlowState([*weights, updates], step=0, full_since=None)

@tf.function
def step():
    for number, weight in enumerate(weights):
        one = tf.fill(weight.shape, 2.0 ** (start % 8))
        weight.assign_add(hvd.allreduce(one, op=hvd.Sum, name=f"gradient{number}"))
    updates.assign_add(1)

@hvd.elastic.run
def train(state):
    while True:
        if most not in (0, hvd.size()):
            state.full_since = None
        elif state.full_since is None:
            state.full_since = state.step
        elif state.step >= state.full_since + (60 if most == 0 else 30):
            return
        step()
        state.step += 1
        if way == "root" and state.step == 35 and hvd.size() == began_with:
            if hvd.rank() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.broadcast_object("an epoch's order", 0)
        if state.step % 10 == 0:
            state.commit()
        time.sleep(0.002)

train(state)
"""

FIT = """
import json
from tfhvd.protocol.variables import rank_of
start, (hosts, most, way) = rank_of(os.environ), sys.argv[1:]
os.environ["TFHVD_TEST_HOST"] = hosts[min(start, len(hosts) - 1)]
import keras
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd
hvd.init()
most = int(most)
keras.utils.set_random_seed(1 + start)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
x = np.random.default_rng(1).random((64, 4)).astype("float32")

class Until(keras.callbacks.Callback):
    full, last = 0, -1
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.005)
    def on_epoch_end(self, epoch, logs=None):
        self.last = epoch
        self.full = self.full + 1 if hvd.size() == most else 0
        self.model.stop_training = self.full >= 3

until, first = Until(), 0
while True:
    last = first + 1 if way == "fits" else 10**6
    model.fit(x, x.sum(1, keepdims=True), batch_size=8, initial_epoch=first, epochs=last,
              verbose=0, callbacks=[until])
    first = last
    if way == "fit" or int(hvd.broadcast(int(until.full >= 3), 0)):
        break
weights, updates = model.variables, model.optimizer.iterations

class state:
    step = 8 * (first if way == "fits" else until.last + 1)
"""

# What every rank says at its end.
REPORT = """
import hashlib
bits = np.concatenate([np.asarray(tf.convert_to_tensor(w)).ravel() for w in weights]).tobytes()
said = {"start": start, "rank": hvd.rank(), "size": hvd.size(), "steps": int(state.step),
        "updates": int(updates.numpy()), "weights": hashlib.sha256(bits).hexdigest()}
print("end " + json.dumps(said) + "\\n", end="", flush=True)
"""

# What ends one rank, without a failpoint of the case: the recovery from it is what the case is of.
LOSES_ONE = "commit_begins@1#3"
STEADY = "commit_saved#2:"  # by then steps are locked

# How ranks pass each place. "taken up": after a loss or an admission; "start": when ranks meet for
# the first time as well; "trained": in any step; the rest by themselves.
WHEN = {
    "roster_read": "taken up",
    "engine_abandoned": "taken up",
    "mesh_opening": "taken up",
    "mesh_open": "taken up",
    "connected": "start",
    "accepted": "start",
    "control_plane_open": "start",
    "communicator_open": "start",
    "handshakes_exchanged": "start",
    "positions_sending": "taken up",
    "positions_shared": "taken up",
    "copy_fetched": "copied",
    "copy_sent": "copied",
    "copies_done": "copied",
    "counts_sharing": "counted",
    "counts_shared": "counted",
    "reconciled": "taken up",
    "memory_made": "start",
    "memory_mapped": "start",
    "transport_selected": "start",
    "engine_made": "start",
    "engine_taken": "taken up",
    "entry_resubmitted": "taken up",
    "entries_taken": "taken up",
    "members_noted": "taken up",
    "announced": "trained",
    "decision_sent": "trained",
    "decision_taken": "trained",
    "vote_cast": "trained",
    "bucket_agreed": "trained",
    "collective_begins": "trained",
    "data_sent": "trained",
    "values_posted": "trained",
    "results_posted": "trained",
    "host_reduced": "trained",
    "collective_written": "trained",
    "result_kept": "trained",
    "collective_done": "trained",
    "commit_begins": "trained",
    "commit_agreed": "trained",
    "commit_saved": "trained",
    "state_restored": "gone back",
    "went_back": "gone back",
    "ready_said": "came",
    "training_said": "fit",
    "admission_begins": "admitted",
    "admission_agreed": "admitted",
    "let_in_asked": "admitted",
    "let_in_done": "admitted",
    "admitted": "came",
    "joined_said": "came",
    "state_reset": "synced",
    "state_syncing": "synced",
    "state_synced": "synced",
    "fit_lets_in": "fit",
    "fit_agrees_anew": "fit",
    "fit_begun_anew": "fit",
    "leaving": "ends",
    "left": "ends",
    "closing": "ends",
}
# Places that rank 0 alone comes to; where all ranks are on one host; and where each has its own.
RANK_0 = {"decision_sent", "let_in_asked"}
ONE_HOST = {"values_posted", "results_posted"}
OWN_HOSTS = {"data_sent"}


@dataclass(frozen=True)
class Case:
    """One job.

    Attributes:
        place: the failpoint.
        role: of who comes to it, and what happens besides.
        points: TFHVD_TEST_FAILPOINTS.
        hosts: by the number that a rank was started with, its host; the last one's for all later.
        ranks: how many are started.
        most: how many there are to be at the end, with those that come; 0: none comes.
        victims: how many ranks end at `place`.
        lost: how many are lost without others in their place.
        way: of the program: "loop", "fit", "fits" of one epoch each, or "root", where a broadcast
            loses its root.
        fails: whether the job is to end as one of fixed size.
        options: of tfhvdrun.
    """

    place: str
    role: str
    points: str
    hosts: str
    ranks: int
    most: int = 0
    victims: int = 1
    lost: int = 1
    way: str = "loop"
    fails: bool = False
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.place}: {self.role}"


def everything() -> list[Case]:
    """All cases, place by place."""
    return [case for place in WHEN for case in _with_stops(list(_cases(place)))]


def _with_stops(cases: list[Case]) -> list[Case]:
    """Adds to a place's cases one in which the rank is stopped instead, and then evicted."""
    single = [case for case in cases if case.victims == 1 and not case.fails]
    if not single:
        return cases
    last = next((case for case in single if case.role == "last"), single[0])
    parts = [f"{p}=stop" if _place(p) == last.place else p for p in last.points.split(",")]
    stops = replace(last, role=f"{last.role}, stopped", points=",".join(parts))
    return [*cases, replace(stops, options=(*stops.options, "--evict-after", "2"))]


def _place(point: str) -> str:
    return point.rpartition(":")[2].partition("@")[0]


def _cases(place: str) -> Iterator[Case]:
    when = WHEN[place]
    if when == "trained":
        yield from _trained(place)
    elif when in ("taken up", "start"):
        yield from _taken_up(place)
    elif when == "copied":
        # A broadcast of much goes from rank to rank, and rank 2 passes nothing on: the root is
        # done. Before it the ranks tell each other how many variables they have.
        lost = "state_syncing:collective_begins@2#2"
        holders = {"rank 0": 0} if place == "copy_fetched" else {"rank 0": 0, "last": 3}
        for role, rank in holders.items():
            yield Case(place, role, f"{lost},{place}@{rank}", "abcd", 4, lost=2)
        if place != "copy_fetched":
            both = f"{place}@0,{place}@3"
            yield Case(place, "two at once", f"{lost},{both}", "abcd", 4, victims=2, lost=3)
    elif when == "gone back":
        for role, rank in {"rank 0": 1, "a host's first": 2, "last": 3}.items():
            yield Case(place, role, f"{place}@{rank}", "aabb", 4, lost=2, way="root")
        both = f"{place}@1,{place}@3"
        yield Case(place, "two at once", both, "aabb", 4, victims=2, lost=3, way="root")
    elif when == "ends":
        for role, rank in {"rank 0": 0, "a host's first": 1, "last": 2}.items():
            yield Case(place, role, f"{place}@{rank}", "abb", 3, fails=True)
        yield Case(place, "two at once", f"{place}@0,{place}@2", "abb", 3, victims=2, fails=True)
    else:
        yield from _joining(place, when)


def _trained(place: str) -> Iterator[Case]:
    one, two = ("aaa", "aaaa") if place in ONE_HOST else ("abb", "aabb")
    one, two = ("abc", "abcd") if place in OWN_HOSTS else (one, two)
    roles = {"rank 0": 0} if place in RANK_0 else {"rank 0": 0, "a host's first": 1, "last": 2}
    for role, rank in roles.items():
        yield Case(place, role, f"{STEADY}{place}@{rank}", one, 3)
    if place not in RANK_0:
        both = f"{STEADY}{place}@0,{STEADY}{place}@3"
        yield Case(place, "two at once", both, two, 4, victims=2, lost=2)
    rank = 0 if place in RANK_0 else 2
    points = f"{LOSES_ONE},entries_taken:{place}@{rank}"
    again = 2 if place == LOSES_ONE.partition("@")[0] else 1
    yield Case(place, "during recovery", points, two, 4, victims=again, lost=2)
    yield join(place, "rank 0, during a join", f"let_in_done:{place}@0", hosts=one)
    if place not in RANK_0:
        yield join(place, "who came, during a join", f"admitted:{place}@2", hosts=one)


def _taken_up(place: str) -> Iterator[Case]:
    first = "" if place == "roster_read" else "roster_read:"
    # The first one of each host makes its memory, and one that is alone there makes none.
    roles = {"rank 0": 0, "a host's first": 2, "last": 3}
    hosts = "aaab" if place == "engine_abandoned" else "aabb"
    if place == "memory_made":
        roles, hosts = {"rank 0": 0, "a host's first": 3}, "aaabb"
    elif place == "memory_mapped":
        hosts = "aaabb"
    ranks = len(hosts)
    for role, rank in roles.items():
        points = f"{LOSES_ONE},{first}{place}@{rank}"
        yield Case(place, role, points, hosts, ranks, lost=2)
    both = ",".join(f"{first}{place}@{rank}" for rank in (0, 3))
    yield Case(place, "two at once", f"{LOSES_ONE},{both}", hosts, ranks, victims=2, lost=3)
    if not place.startswith("memory_"):
        later = f"{place}@0#2" if place == "roster_read" else f"roster_read#2:{place}@0"
        points = f"{LOSES_ONE},roster_read:engine_abandoned@3,{later}"
        again = 2 if place == "engine_abandoned" else 1
        yield Case(place, "during recovery", points, hosts, ranks, victims=again, lost=3)
    if place != "entry_resubmitted":  # nothing is under way there
        host = "aab" if place.startswith("memory_") else "abb"
        yield join(place, "rank 0, during a join", f"{first}{place}@0", hosts=host)
        if place != "memory_made" and place != "members_noted":
            yield join(place, "who came, during a join", f"{first}{place}@2")
    if WHEN[place] == "start":
        host = "aab" if place.startswith("memory_") else "abb"
        for role, rank in {"rank 0": 0, "a host's first": 1}.items():
            if place == "memory_made" and rank == 1:
                continue
            role = f"{role}, at the start"
            yield Case(place, role, f"{place}@{rank}", host, 3)


def join(place: str, role: str, points: str, hosts: str = "abb", **more: object) -> Case:
    """A job of two ranks that a third comes to; others take the place of those that are lost."""
    options = ("--blacklist-cooldown-range", "0.1", "0.1")
    case = Case(place, role, points, hosts, 2, most=3, lost=0, options=options)
    return replace(case, **more)  # type: ignore[arg-type]


def _joining(place: str, when: str) -> Iterator[Case]:
    if when == "came":
        yield join(place, "who came", f"{place}@2")
        both = f"{place}@1,{place}@2"
        yield join(place, "two who came", both, ranks=1, victims=2)
        if place == "ready_said":
            yield join(place, "rank 0", f"{place}@0")
        else:
            yield join(place, "who came, after the only epoch", f"{place}@2", way="fits")
        return
    way = "fit" if when == "fit" else "loop"
    if place.startswith("fit_"):
        yield join(place, "rank 0, after the only epoch", f"{place}@0", way="fits")
        yield join(place, "another one, after the only epoch", f"{place}@1", way="fits")
    first = "let_in_done:" if when == "synced" else ""
    # Of `counted` the second generation is that in which others come: they lose nobody before.
    yield join(place, "rank 0", f"{first}{place}@0", way=way)
    if place not in RANK_0:
        yield join(place, "a host's first", f"{first}{place}@1", way=way)
        both = f"{first}{place}@0,{first}{place}@2"
        more = {"ranks": 3, "most": 4, "victims": 2}
        yield join(place, "two at once", both, hosts="aabb", way=way, **more)
    if when == "counted" or place in ("state_syncing", "state_synced", "training_said"):
        yield join(place, "who came", f"{place}@2", way=way)


def run(case: Case) -> None:
    """Runs a job. Raises AssertionError, with what it has said, where anything was wrong."""
    segments = shared_memory.files()
    with tempfile.TemporaryDirectory(prefix="tfhvd-failpoints-") as folder:
        path = script(Path(folder), (FIT if case.way.startswith("fit") else LOOP) + REPORT)
        words = ["--elastic", "--no-prefix", "-np", str(case.ranks), *case.options]
        words += ["--max-np", str(case.most)] if case.most else []
        words += [sys.executable, str(path), case.hosts, str(case.most), case.way]
        began = time.monotonic()
        try:
            # Where it runs a verdict is written.
            env = {"TFHVD_TEST_FAILPOINTS": case.points}
            job = launch(*words, timeout=SECONDS, cwd=Path(folder), **env)
        except subprocess.TimeoutExpired as error:
            said = (error.stderr or b"").decode(errors="replace")
            raise AssertionError(f"{case}: it hangs\n{said[-4000:]}") from None
        took = time.monotonic() - began
        left = wait_until_gone(str(path))
    told = f"\n{case}, {case.points}, {took:.0f} s\n{job.out[-2000:]}\n{job.err[-4000:]}"
    passed = job.err.splitlines().count(f"tfhvd: failpoint {case.place}")
    assert passed == case.victims, f"{passed} ranks came to the place, of {case.victims}{told}"
    assert not left, f"processes are left{told}"
    left_in_memory = shared_memory.left(segments)
    assert not left_in_memory, f"{left_in_memory} left in /dev/shm{told}"
    ends = [json.loads(line[4:]) for line in job.out.splitlines() if line.startswith("end ")]
    assert len({end["weights"] for end in ends}) <= 1, f"weights differ{told}"
    assert all(end["updates"] == end["steps"] for end in ends), f"updates are not steps{told}"
    if case.fails:
        assert job.code == 128 + signal.SIGKILL, f"exit code {job.code}{told}"
        assert "failed first: killed by SIGKILL" in job.err, f"the end is not told{told}"
        return
    assert job.code == 0, f"exit code {job.code}{told}"
    size = case.most or case.ranks - case.lost
    assert sorted(end["rank"] for end in ends) == list(range(size)), f"ranks are missing{told}"
    assert {end["size"] for end in ends} == {size} and len({end["steps"] for end in ends}) == 1


def sample(cases: list[Case], count: int, seed: int) -> list[Case]:
    """Draws some of them, of as many places as there are so many, and then of these again."""
    draw = random.Random(seed)
    shuffled = draw.sample(cases, len(cases))
    turn: dict[str, int] = {}
    order = {}
    for case in shuffled:
        order[case] = turn[case.place] = turn.get(case.place, 0) + 1
    return sorted(shuffled, key=order.__getitem__)[:count]
