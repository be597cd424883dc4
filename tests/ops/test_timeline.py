"""hvd.start_timeline and hvd.stop_timeline: every file is read strictly, and has its pairs."""

import json
from collections import defaultdict

import mpi
import pytest
import tensorflow as tf
from modes import in_both_modes, run

import tfhvd as hvd

on_ranks = pytest.mark.ranks(1, 2)


def rows_of(path):
    """Reads a timeline; returns the events of each row by its name, checked."""
    names, rows = {}, defaultdict(list)
    open_phases, last = defaultdict(list), defaultdict(float)
    for event in json.loads(path.read_text(encoding="utf-8")):
        lane = (event["pid"], event["tid"])
        assert event["ts"] >= last[lane]
        last[lane] = event["ts"]
        if event["ph"] == "M":
            names[event["pid"]] = event["args"]["name"]
            continue
        if event["ph"] == "B":
            open_phases[lane].append(event["name"])
        elif event["ph"] == "E":
            event["name"] = "/" + open_phases[lane].pop()
        rows[names[event["pid"]]].append(event)
    rows["open"] = [lane for lane, phases in open_phases.items() if phases]
    return rows


def names_in(events):
    return [event["name"] for event in events]


@on_ranks
@in_both_modes
def test_what_becomes_of_a_tensor(mode, tmp_path):
    path = tmp_path / "timeline.json"
    hvd.start_timeline(path, mark_cycles=True)
    hvd.barrier()  # rank 0 records when the others announce
    name = f"timed_{mode}"
    run(mode, lambda: hvd.allreduce(tf.ones([2, 3]), name=name))
    run(mode, lambda: hvd.grouped_allreduce([tf.ones([5]), tf.ones([])], name=f"{name}_group"))
    run(mode, lambda: hvd.broadcast(tf.ones([4]), 0, name=f"{name}_sent"))
    hvd.stop_timeline()
    assert path.exists() == (hvd.rank() == 0)
    if hvd.rank() > 0:
        return
    rows = rows_of(path)
    assert rows["open"] == []
    found = names_in(rows[name])
    call = "SHM_ALLREDUCE" if hvd.size() > 1 else "INPROC_ALLREDUCE"
    ticks = [str(rank) for rank in range(hvd.size())]
    end = 1 + len(ticks)
    assert found[0] == "NEGOTIATE_ALLREDUCE" and sorted(found[1:end]) == ticks
    assert found[end:] == [
        "/NEGOTIATE_ALLREDUCE",
        *("ALLREDUCE", "QUEUE", "/QUEUE", call, f"/{call}", "/ALLREDUCE"),
    ]
    [begin] = [event for event in rows[name] if event["name"] == "ALLREDUCE"]
    assert begin["args"] == {"dtype": "float32", "shape": [2, 3], "bytes": 24}
    group = names_in(rows[f"{name}_group"])
    buffer = [phase for phase in group if "FUSION_BUFFER" in phase and phase[0] != "/"]
    # Ranks of one host reduce small tensors where they lie.
    alone = ["MEMCPY_IN_FUSION_BUFFER", "MEMCPY_OUT_FUSION_BUFFER"]
    assert buffer == (alone if hvd.size() == 1 else [])
    assert call.replace("ALLREDUCE", "BCAST") in names_in(rows[f"{name}_sent"])
    [about] = [row for row in rows if row.startswith("rank 0 on ")]
    assert names_in(rows[about]).count("CYCLE_START") >= 3


@pytest.mark.ranks(2)
def test_a_locked_schedule_and_a_file_of_each_rank(tmp_path):
    """Steps that repeat are agreed on by votes, which every rank sees."""

    @tf.function
    def step(x):
        return [hvd.allreduce(x, name=f"repeated_{k}", op=hvd.Sum) for k in range(3)]

    hvd.start_timeline(f"{tmp_path}/{{rank}}.json")
    for _ in range(60):
        step(tf.ones([4]))
    hvd.stop_timeline()
    rows = rows_of(tmp_path / f"{hvd.rank()}.json")
    assert rows["open"] == []
    for k in range(3):
        events = rows[f"repeated_{k}"]
        assert names_in(events).count("/ALLREDUCE") == 60
        locked = [event for event in events if event.get("args") == {"locked": True}]
        assert locked and {event["name"] for event in locked} == {"/NEGOTIATE_ALLREDUCE"}
        if hvd.rank() == 1:  # sees votes alone
            assert sorted(names_in(events)).count("0") == len(locked)


@on_ranks
def test_what_is_refused(tmp_path):
    with pytest.raises(TypeError):
        hvd.start_timeline(3)
    if hvd.rank() == 0:
        with pytest.raises(ValueError, match=r"No such file or directory\. Expected: a file in a"):
            hvd.start_timeline(tmp_path / "no" / "folder")
    hvd.start_timeline(tmp_path / "one")
    with pytest.raises(ValueError, match=r"already being recorded.*Call hvd.stop_timeline\(\)"):
        hvd.start_timeline(tmp_path / "two")
    hvd.stop_timeline()
    hvd.stop_timeline()


KILLED = """
import os, signal, time
from pathlib import Path
import tfhvd as hvd
hvd.init()
for _ in range(3):
    hvd.remove_process_set(hvd.add_process_set([0]))
files = [Path(os.environ["FOLDER"]) / str(rank) for rank in range(2)]
while not all("REMOVE_PROCESS_SET" in file.read_text() for file in files):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_job_leaves_whole_files(tmp_path):
    """Begun by Horovod's variable."""
    env = {"FOLDER": str(tmp_path), "HOROVOD_TIMELINE": f"{tmp_path}/{{rank}}"}
    job = mpi.run_ranks(2, KILLED, env=env)
    assert not job.left
    for rank in range(2):
        rows = rows_of(tmp_path / str(rank))
        assert names_in(rows["tfhvd.process_sets"]).count("ADD_PROCESS_SET") >= 1, str(job)
