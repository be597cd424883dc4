"""Jobs that outlive the host of tfhvdrun, by real processes on hosts with networks of their own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import children
import network
import pytest
import troubleshooting
from launching import TFHVDRUN, script
from mpi import wait_for

pytestmark = pytest.mark.thorough

TRAINS = """
import tensorflow as tf
import tfhvd as hvd
from pathlib import Path
hvd.init()
start, folder, steps, ends = hvd.rank(), Path(sys.argv[1]), 0, False
while not ends:
    total = hvd.allreduce(tf.fill([100], 2.0 ** start), op=hvd.Sum, name="gradient")
    ends = hvd.allreduce(float((folder / "end").exists()), op=hvd.Max, name="ends") > 0
    steps += 1
    if steps % 20 == 0:
        (folder / f"{start}.sum").write_text(f"{total[0]:g}")
    time.sleep(0.005)
rows = hvd.allgather(tf.stack([total[0], float(steps)])[tf.newaxis]).numpy()
assert (rows == rows[0]).all(), rows
print(f"{start} is rank {hvd.rank()} of {hvd.size()}, sum {total[0]:g}\\n", end="", flush=True)
"""


# The rank that comes later has not come to hvd.init() yet.
COMES_LATE = """
from pathlib import Path
from tfhvd.protocol.variables import rank_of
if rank_of(os.environ) == 3:
    Path(sys.argv[1], "comes").touch()
    time.sleep(600)
"""


class Trains:
    """A job of one rank a host; tfhvdrun is on the first one."""

    def __init__(self, folder: Path, hosts: network.Network, job: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.hosts = hosts
        self.job = job

    def wait_for_sum(self, ranks: set[int]) -> None:
        """Waits until steps are made by these ranks alone."""
        total = f"{sum(2**rank for rank in ranks):g}"
        paths = [self.folder / f"{rank}.sum" for rank in ranks]
        wait_for(lambda: all(path.read_text() == total for path in paths), 30)

    def finish(self) -> str:
        """Lets it come to its end; returns what was written where tfhvdrun is not any more."""
        (self.folder / "end").touch()
        wait_for(lambda: not any(map(self.hosts.pids, range(1, len(self.hosts.names)))), 60)
        return "".join(path.read_text() for path in self.logs())

    def logs(self) -> list[Path]:
        """The files in which that is written."""
        return sorted(self.folder.glob("tfhvdrun-*.log"))


@contextlib.contextmanager
def training(folder: Path, count: int, *before: str, comes: bool = False) -> Iterator[Trains]:
    """A job on so many hosts, all of which train.

    Args:
        folder: for it.
        count: how many.
        before: words before tfhvdrun's; without them its host lives as long as it does.
        comes: whether the last host is for a rank that comes later, and has been started.
    """
    if not network.available():
        pytest.skip("only root can make hosts with networks of their own")
    path = script(folder, (COMES_LATE if comes else "") + TRAINS)
    later = ["-np", str(count - 1), "--max-np", str(count)] if comes else []
    with network.hosts(count) as hosts, hosts.daemon() as others:
        words = ["--majority", *later, *others.tfhvdrun(1), sys.executable, str(path), str(folder)]
        with subprocess.Popen(
            [*hosts.run_on(0), *before, *TFHVDRUN, *words],
            cwd=folder,
            env=children.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as job:
            files = [folder / f"{rank}.sum" for rank in range(count - comes)]
            files += [folder / "comes"] if comes else []
            wait_for(lambda: job.poll() is not None or all(each.exists() for each in files), 120)
            assert job.poll() is None, job.communicate()
            try:
                yield Trains(folder, hosts, job)
            finally:
                job.kill()


@pytest.mark.parametrize("encrypts", [False, True])
def test_a_job_goes_on_on_the_other_hosts_where_that_of_tfhvdrun_is_cut_off(
    tmp_path, monkeypatch, encrypts
):
    monkeypatch.setenv("TFHVD_ENCRYPT", str(int(encrypts)))
    with training(tmp_path, 3) as trains:
        trains.hosts.cut_off(0)
        trains.wait_for_sum({1, 2})
        _, err = trains.job.communicate(timeout=60)
        said = trains.finish()
    assert trains.job.returncode == 1
    troubleshooting.check("`more than half of the ranks failed at once`", err)
    assert "tfhvdrun: lost contact with the launcher's host; this host takes over" in said
    assert re.search("rank 0 on host .* lost without .*; the job continues with 2 of 3 ranks", said)
    assert said.index("now supervises the job") < said.index("lost without")
    assert "1 is rank 0 of 2, sum 6" in said and "2 is rank 1 of 2, sum 6" in said
    assert said.endswith("tfhvdrun: the job has ended with exit code 0\n")


@pytest.mark.thorough
def test_a_job_goes_on_where_all_on_the_host_of_tfhvdrun_is_killed_and_then_the_next_one_is_cut_off(
    tmp_path,
):
    with training(tmp_path, 4) as trains:
        trains.hosts.kill_all(0)
        trains.wait_for_sum({1, 2, 3})
        trains.hosts.cut_off(1)
        trains.wait_for_sum({2, 3})
        said = trains.finish()
    assert "2 is rank 0 of 2, sum 12" in said and "3 is rank 1 of 2, sum 12" in said
    assert said.count("now supervises the job") == 2
    assert "1 is rank" not in said
    assert said.endswith("tfhvdrun: the job has ended with exit code 0\n")


@pytest.mark.thorough
def test_no_rank_is_lost_where_tfhvdrun_alone_is_killed(tmp_path):
    stays = ("bash", "-c", '"$@"; sleep 600', "-")
    with training(tmp_path, 3, *stays) as trains:
        supervisor = children.supervisor_of(trains.job.pid)
        keeper = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(keeper, signal.SIGKILL)
        os.kill(supervisor, signal.SIGKILL)
        wait_for(lambda: any("supervises" in each.read_text() for each in trains.logs()), 30)
        said = trains.finish()
    for rank in range(3):
        assert f"{rank} is rank {rank} of 3, sum 7" in said
    assert said.endswith("tfhvdrun: the job has ended with exit code 0\n")


@pytest.mark.thorough
def test_a_host_that_is_cut_off_from_the_others_ends_its_part(tmp_path):
    with training(tmp_path, 3) as trains:
        trains.hosts.cut_off(1)
        trains.wait_for_sum({0, 2})
        wait_for(lambda: list(tmp_path.glob("tfhvdrun-*.log")), 30)
        said = trains.finish()
        out, err = trains.job.communicate(timeout=60)
    assert trains.job.returncode == 0, err
    assert "0 is rank 0 of 2, sum 5" in out and "2 is rank 1 of 2, sum 5" in out
    assert "tfhvdrun: error: more than half of the ranks failed at once" in said
    assert said.endswith("tfhvdrun: the job has ended with exit code 1\n")


@pytest.mark.thorough
def test_a_rank_that_was_to_join_ends_with_the_host_of_tfhvdrun_and_no_other(tmp_path):
    with training(tmp_path, 4, comes=True) as trains:
        trains.hosts.cut_off(0)
        trains.wait_for_sum({1, 2})
        killed = "it had not joined yet; the job continues"
        wait_for(lambda: any(killed in each.read_text() for each in trains.logs()))
        said = trains.finish()
    assert "tfhvdrun: rank 3 is killed: it was about to join, and no rank can join after" in said
    assert "1 is rank 0 of 2, sum 6" in said and "2 is rank 1 of 2, sum 6" in said
    assert said.endswith("tfhvdrun: the job has ended with exit code 0\n")
