"""The parts of steps on several hosts, with latency between them; and a link that is slow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import children
import network
import pytest
import troubleshooting

from tfhvd.profiling.timeline_files import merge, read
from tfhvd.tools.cli import main

PROGRAM = """
import json, sys, time
import tensorflow as tf
import tfhvd as hvd
hvd.init()
weights = tf.Variable(tf.zeros([8, 8]))
options = tf.data.Options()
options.experimental_optimization.inject_prefetch = False
options.autotune.enabled = False  # who leaves the loop early waits for its thread, up to a minute

def elements():
    while True:
        if hvd.rank() == 5:
            time.sleep(0.05)
        yield [1.0] * 8

data = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec((8,), tf.float32))

@tf.function
def step(x):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(tf.tanh(x @ weights))
    weights.assign_sub(0.01 * tape.gradient(loss, weights))

for number, x in enumerate(data.batch(1).with_options(options)):
    step(x)
    if number == 5:
        # Eight ranks share two cores: between the two a rank may lose its for 20 ms. So it is 80
        # steps, four seconds, of which that is half a percent.
        profile, began = hvd.profile(80, quiet=True), time.monotonic()
    elif number > 5:
        wall = time.monotonic() - began
        if profile.step() is not None:
            break
report = profile.report
own = [sum(sum(s.parts.values()) for s in report.steps[hvd.rank()]), wall]
everyone = hvd.allgather_object(own)
if hvd.rank() == 0:
    found = report.straggler
    waits = [s.waits_for for rank, steps in report.steps.items() if rank != 5 for s in steps]
    print(json.dumps({
        "walls": everyone, "rank": found.rank, "cause": found.cause, "error": report.clock_error,
        "for_5": sum(w.get(5, 0.0) for w in waits), "for_all": sum(sum(w.values()) for w in waits),
    }))
"""


OF_THREE = """
import json
import tensorflow as tf
import tfhvd as hvd
hvd.init()
hvd.start_timeline("t.{rank}.json")
x = tf.ones([300_000])
for _ in range(3):
    hvd.allreduce(x, name="x")
profile = hvd.profile(15)
for _ in range(15):
    hvd.allreduce(x, name="x")
    profile.step()
hvd.stop_timeline()
found = profile.report.straggler
if hvd.rank() == 0:
    print(json.dumps({
        "whole": profile.report.seconds(0, "whole"),
        "straggler": found and [found.rank, found.cause],
    }))
"""


def trained(net: network.Network, ranks_per_host: int, folder: Path) -> str:
    """What train.py in a folder prints on the ranks of all hosts."""
    words = [sys.executable, "-m", "tfhvd.launch", *net.tfhvdrun(ranks_per_host)]
    ran = subprocess.run(
        [*net.run_on(0), *words, sys.executable, "train.py"],
        cwd=folder,
        env=children.environment(TF_CPP_MIN_LOG_LEVEL="2"),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.thorough
def test_a_slow_link_is_named_and_a_job_without_it_is_faster(tmp_path, capsys):
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    (tmp_path / "train.py").write_text(OF_THREE)
    found, said = {}, {}
    for name, unlike in ("slow", {1: network.Link(50, 0.2)}), ("mended", {}):
        with network.hosts(3, network.Link(500, 0.2), unlike) as net:
            said[name] = trained(net, 1, tmp_path)
        [line] = [line for line in said[name].splitlines() if '"whole"' in line]
        found[name] = json.loads(line[line.index("{") :])
        files = [read(path) for path in sorted(tmp_path.glob("t.*.json"))]
        # All hosts are on this machine, and so have one clock: the offsets that are found are
        # errors. Two clocks of it are read one after the other in each file's first event.
        _, offsets = merge(files)
        assert len(offsets) == 3
        for offset in offsets.values():
            assert abs(offset.seconds) <= offset.error + 0.002, offsets
            assert offset.error < found[name]["whole"], offsets
        assert main(["timeline", "report", str(tmp_path / "t.*.json")]) == 0
        of_files = capsys.readouterr().out
        assert ("is slow, with" in of_files) == (name == "slow"), of_files
    assert found["slow"]["straggler"] == [1, "link"], said["slow"]
    troubleshooting.check("It is slower on two hosts than on one", said["slow"])
    assert found["mended"]["straggler"] is None or found["mended"]["straggler"][1] != "link", said
    assert found["mended"]["whole"] < found["slow"]["whole"] / 2, found


@pytest.mark.thorough
def test_eight_ranks_on_two_hosts(tmp_path):
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    (tmp_path / "train.py").write_text(PROGRAM)
    with network.hosts(2, network.Link(megabits=1000, milliseconds=2)) as net:
        out = trained(net, 4, tmp_path)
    [line] = [line for line in out.splitlines() if '"walls"' in line]
    found = json.loads(line[line.index("{") :])
    assert (found["rank"], found["cause"]) == (5, "input"), found
    for parts, wall in found["walls"]:
        assert parts == pytest.approx(wall, rel=0.01), found
    assert found["error"] < 0.05, found
    assert found["for_5"] >= 0.8 * found["for_all"], found
