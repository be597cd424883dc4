"""Timelines of several ranks on one clock, and what they tell of steps."""

import json

import mpi
import pytest
from profile_pages import data_of
from variants import also

from tfhvd.profiling import report
from tfhvd.profiling.intervals import Span
from tfhvd.profiling.timeline_files import RankTimeline, TimelineError, merge, read, traces
from tfhvd.profiling.trace import Trace
from tfhvd.profiling.trace_events import events_of
from tfhvd.tools.cli import main

ROWS = 1 << 20  # of a rank


class Job:
    """Steps of two collectives each, which one rank calls 20 ms after the others.

    Args:
        ranks: how many, two on each host.
        clocks: by host, seconds that its clock since 1970 is ahead.
        late: the ranks that do so, in turn.
    """

    latency = 0.001  # seconds from the last call to a result
    steps = 30

    def __init__(self, ranks=2, clocks=(0.0,), late=(1,)):
        self.ranks, self.clocks, self.late = ranks, clocks, late

    def times(self, step, name, rank):
        """When a rank called, all were ready, it began, and it ended: true times."""
        begin = 1000 + 0.1 * step + (0.01 if name == "b" else 0.0)
        late = self.late[step % len(self.late)]
        called = begin + 0.0001 * rank + (0.02 if rank == late else 0.0)
        ready = begin + 0.02 + 0.0001 * (self.ranks - 1)
        noise = 0.0003 * ((step * 7 + rank) % 5)
        return (
            called,
            ready + self.latency / 2,
            ready + self.latency / 2,
            ready + self.latency + noise,
        )

    def file(self, rank, first_step=0):
        host = rank // 2
        ahead = self.clocks[host]
        boot = 900.0 + host  # the steady clock's zero
        events = [self._named(rank, rank * ROWS, f"rank {rank} on host{host}", 999.0 - boot)]
        events[0]["args"]["start_time_since_epoch_in_micros"] = round(1e6 * (999.0 + ahead))
        for row, name in enumerate("ab", 1):
            events.append(self._named(rank, rank * ROWS + row, name, 999.0 - boot))
            for step in range(first_step, self.steps):
                called, agreed, began, ended = (t - boot for t in self.times(step, name, rank))
                # The first rank's row begins when any rank was ready; a tick says when it was.
                opened = min(self.times(step, name, r)[0] for r in range(self.ranks)) - boot
                phases = [("B", "NEGOTIATE_ALLREDUCE", opened if rank == 0 else called)]
                if rank == 0:
                    phases += [("X", "0", called)]
                phases += [("E", "", agreed), ("B", "ALLREDUCE", agreed), ("B", "QUEUE", agreed)]
                phases += [("E", "", began), ("B", "MPI_ALLREDUCE", began)]
                phases += [("E", "", ended), ("E", "", ended)]
                for phase, what, at in phases:
                    event = {"ph": phase, "ts": 1e6 * at, "pid": rank * ROWS + row, "tid": 0}
                    if what:
                        event["name"] = what
                    if what == "ALLREDUCE":
                        event["args"] = {"dtype": "float32", "shape": [1000], "bytes": 4000}
                    events.append(event)
        return RankTimeline(rank, f"host{host}", 999.0 + ahead - (999.0 - boot), events)

    def files(self, **late):
        return [self.file(rank, late.get(f"rank{rank}", 0)) for rank in range(self.ranks)]

    @staticmethod
    def _named(rank, pid, name, at):
        args = {"name": name}
        return {
            "ph": "M",
            "name": "process_name",
            "ts": 1e6 * at,
            "pid": pid,
            "tid": 0,
            "args": args,
        }


@pytest.mark.parametrize("ahead", [0.0, 0.004, -3.5])
def test_two_hosts_come_onto_one_clock_to_the_error_that_is_stated(ahead):
    job = Job(4, clocks=(0.0, ahead), late=(1, 3))
    merged, offsets = merge(job.files())
    assert offsets[1].error == 0.0
    assert offsets[2].error == offsets[3].error
    assert 0 < offsets[2].error < 2 * job.latency
    assert abs(offsets[2].seconds + ahead) <= offsets[2].error
    ends = {}
    for event in merged:
        if event["ph"] == "B" and event["name"] == "MPI_ALLREDUCE":
            ends.setdefault(event["pid"] // ROWS, []).append(event["ts"])
    for rank in (1, 2, 3):  # All begin at one time.
        for mine, first in zip(ends[rank], ends[0]):
            assert abs(mine - first) <= 1e6 * offsets[rank].error + 1
    labels = [e["args"]["labels"] for e in merged if e.get("name") == "process_labels"]
    assert len(labels) == 4
    assert f"to {1e3 * offsets[2].error:.3f} ms" in labels[2]


@pytest.mark.parametrize("late", [{"rank1": 2}, {"rank0": 3}, {"rank0": 1, "rank3": 5}])
def test_ranks_that_begin_to_record_later_are_compared_with_the_same_collectives(late):
    found = traces(Job(4, clocks=(0.0, 0.002)).files(**late))
    begins = {(m.name, m.turn): m.began for m in found[0].meetings}
    for rank in (1, 2, 3):
        for meeting in found[rank].meetings:
            assert abs(meeting.began - begins[meeting.name, meeting.turn]) < 0.005
    assert {len(trace.steps) for trace in found.values()} == {29 - max(late.values())}


def test_the_rank_that_the_others_wait_for_is_named_and_no_cause_is_made_up():
    made = report.make(traces(Job(4, clocks=(0.0, 0.0)).files()))
    assert (made.straggler.rank, made.straggler.cause) == (1, "unseen")
    for steps in made.steps.values():
        for step in steps:
            assert sum(step.parts.values()) == pytest.approx(step.whole)
    text = "\n".join(made.lines())
    assert "The others wait for rank 1 for " in text
    assert "hvd.profile(steps=20)" in text
    assert "computing" not in text.splitlines()[1]


def test_a_host_that_is_never_last_is_known_less_well_which_is_said():
    _, offsets = merge(Job(4, clocks=(0.0, 0.1)).files())
    assert 0.005 < offsets[2].error < 0.02
    assert abs(offsets[2].seconds + 0.1) <= offsets[2].error


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    job = Job()
    with pytest.raises(TimelineError, match="two files are of rank 0"):
        traces([job.file(0), job.file(0)])
    other = job.file(1)
    for event in other.events[1:]:
        event["args"] = {"name": "of another program"}
    with pytest.raises(TimelineError, match="no collective in common"):
        traces([job.file(0), other])
    for number, text in enumerate(["", "[]", "{}", '[{"args": {"name": "x"}}]', "no json"]):
        file = tmp_path / f"{number}.json"
        file.write_text(text)
        with pytest.raises(TimelineError, match="it is no timeline of a rank"):
            read(file)


PROGRAM = """
import sys, time
import tensorflow as tf
import tfhvd as hvd
hvd.init()
hvd.start_timeline(sys.argv[1])
for step in range(20):
    if hvd.rank() == 1:
        time.sleep(0.05)
    hvd.grouped_allreduce([tf.ones(10), tf.ones(20)], name="gradients")
hvd.stop_timeline()
"""


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.thorough)])
def test_the_files_of_a_job(ranks, tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    job = mpi.run_ranks(ranks, [str(program), str(tmp_path / "t.{rank}.json")], fork=True)
    assert job.code == 0, job
    assert main(["timeline", "report", str(tmp_path / "t.*.json")]) == 0
    out = capsys.readouterr().out
    assert f"19 steps of {ranks} ranks" in out
    assert "The others wait for rank 1 for " in out
    assert "1.0 collectives a step, of 0.1 KiB each: 2.0 tensors in 1.0 calls; " in out
    assert main(["timeline", "report", "--each-step", str(tmp_path / "t.*.json")]) == 0
    each = capsys.readouterr().out.splitlines()
    assert next(line for line in each if line not in out.splitlines()) == "step 1:"
    assert [each.count(f"step {number}:") for number in (1, 19, 20)] == [1, 1, 0]
    rows = each[each.index("step 7:") + 1 : each.index("step 8:")]
    assert [row.split()[0] for row in rows] == [str(rank) for rank in range(ranks)]
    assert rows[0].endswith("rank 1")
    out = tmp_path / "page.html"
    assert main(["timeline", "page", str(out), str(tmp_path / "t.*.json")]) == 0
    assert capsys.readouterr().out == f"{out}: open it in a browser.\n"
    data = data_of(out.read_text(encoding="utf-8"))
    assert (data["steps"], data["all_ranks"], data["only_collectives"]) == (19, ranks, True)
    assert [name for name, _ in data["parts"]] == ["waiting", "overhead", "communication", "other"]
    assert max(data["ranks"], key=lambda rank: rank["keeps"])["rank"] == 1
    assert data["names"] == ["gradients"]
    merged = tmp_path / "all.json"
    assert (
        main(["timeline", "merge", str(merged), *map(str, sorted(tmp_path.glob("t.*.json")))]) == 0
    )
    assert f"all.json: {ranks} ranks." in capsys.readouterr().out
    events = json.loads(merged.read_text())
    names = [e["args"]["name"] for e in events if e.get("name") == "process_name"]
    host = names[0].split()[-1]
    own = [f"rank {rank} on {host}" for rank in range(ranks)]
    assert len(names) == len(set(names)) and set(own) < set(names)
    for name in set(names) - set(own):
        rank, tensor = name.split(": ")
        assert rank in own and tensor.startswith("gradients")


PROFILED = """
import time
import tensorflow as tf
import tfhvd as hvd
hvd.init()

def elements():
    for _ in range(16):
        if hvd.rank() == 1:
            time.sleep(0.05)
        yield tf.ones([8, 8])

options = tf.data.Options()
options.experimental_optimization.inject_prefetch = False
options.autotune.enabled = False
signature = tf.TensorSpec((8, 8), tf.float32)
data = tf.data.Dataset.from_generator(elements, output_signature=signature).with_options(options)

@tf.function
def step(x):
    return hvd.allreduce(tf.tanh(x @ x), name="gradients")

for number, x in enumerate(data):
    step(x)
    if number == 3:
        profile = hvd.profile(10)
    elif number > 3:
        profile.step()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("ended", ["by the program's end", also("by hvd.stop_timeline")])
def test_steps_that_were_profiled_are_in_the_files(ended, tmp_path, capsys):
    """The report of the files is the one that the program has printed."""
    name = str(tmp_path / "t.{rank}.json")
    program, env = PROFILED, {"HOROVOD_TIMELINE": name}
    if ended == "by hvd.stop_timeline":
        begin, end = f"hvd.init()\nhvd.start_timeline({name!r})\n", "hvd.stop_timeline()\n"
        program, env = PROFILED.replace("hvd.init()\n", begin) + end, {}
    job = mpi.run_ranks(2, program, env=env)
    assert job.code == 0, job
    assert main(["timeline", "report", str(tmp_path / "t.*.json")]) == 0
    said = capsys.readouterr().out
    printed = [line.split() for line in job.ranks[0].out.splitlines()]
    lines = [line.split() for line in said.splitlines()]
    assert lines[:2] == printed[:2], said
    for line, before in zip(lines[2:4], printed[2:4]):
        # The whole step, input, garbage and computing, rounded once more on their way by the file.
        assert line[0] == before[0]
        values, known = ([float(word) for word in words[1:5]] for words in (line, before))
        assert values == pytest.approx(known, abs=0.0011), said
        assert sum(map(float, line[2:9])) == pytest.approx(float(line[1]), rel=0.01)
        # The engine notes the moments twice, for its record and for the file.
        for mine, other in zip(line[5:9], before[5:9]):
            assert float(mine) == pytest.approx(float(other), abs=1.0), said
    assert lines[4] == printed[4], said
    assert "It waits for its input, " in said and "rank 1" in said
    merged = tmp_path / "all.json"
    assert main(["timeline", "merge", str(merged), str(tmp_path / "t.*.json")]) == 0
    names = [event.get("name") for event in json.loads(merged.read_text())]
    assert names.count("step") == 20 and "computing" in names


def test_files_of_which_one_has_no_profile_tell_of_collectives(tmp_path):
    files = Job().files()
    row = files[0].events[0]["pid"]
    begin = 1e-6 * files[0].events[0]["ts"]
    files[0].events += events_of(Trace(0, "host0", (Span(begin + 1, begin + 2),)), row)
    assert all(trace.only_collectives for trace in traces(files).values())


def test_what_is_no_file_is_said(capsys, tmp_path):
    assert main(["timeline", "report", str(tmp_path / "none.json")]) == 2
    assert "there is no file" in capsys.readouterr().err
