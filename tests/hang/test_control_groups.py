"""What both versions of control groups say, from files made up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import control_groups as groups
import pytest

from tfhvd.system import cgroups
from tfhvd.system.cgroups import CPU_LIMIT, MEMORY_LIMIT, files_of

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("perf", "tools")]

import slow  # noqa: E402  (after its folder is on the path)
from commands import environment  # noqa: E402

V1 = "9:name=systemd:/\n4:memory:/job/7\n1:cpu,cpuacct:/job\n"
V2 = "0::/job/7\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
EVENTS = "low 0\nhigh 0\nmax 12\noom 5\noom_kill 2\noom_group_kill 0\n"


@pytest.mark.parametrize(
    ("groups", "value", "paths"),
    [
        ("0::/a\n", MEMORY_LIMIT, ["a/memory.max", "memory.max"]),
        (
            "4:memory:/d\n",
            MEMORY_LIMIT,
            ["memory/d/memory.limit_in_bytes", "memory/memory.limit_in_bytes"],
        ),
        ("1:cpu:/d\n", MEMORY_LIMIT, []),
        ("0::/a/b\n", CPU_LIMIT, ["a/b/cpu.max", "a/cpu.max", "cpu.max"]),
        ("what is this", CPU_LIMIT, []),
    ],
)
def test_where_a_value_is_written(groups, value, paths):
    found = files_of(groups, value, Path("/r"))
    assert [str(file) for (file,) in found] == [f"/r/{path}" for path in paths]


def test_a_value_may_be_in_two_files():
    first = "4:cpuset:/x\n1:cpu,cpuacct:/d\n"
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    assert list(files_of(first, CPU_LIMIT, Path("/r"))) == [
        tuple(Path("/r/cpu/d", name) for name in names),
        tuple(Path("/r/cpu", name) for name in names),
    ]


def put(folder, own, file, text):
    (folder / "own").write_text(own)
    path = folder / "groups" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder / "own", folder / "groups"


@pytest.mark.parametrize(
    ("own", "file", "text", "expected"),
    [
        (V1, "memory/job/7/memory.oom_control", CONTROL, 3),
        (V1, "memory/memory.oom_control", CONTROL, 3),
        (V2, "job/7/memory.events", EVENTS, 2),
        (V2, "memory.events", EVENTS, 2),
        (V2, "job/7/memory.events", "oom 5\n", 0),
        (V2, "job/7/memory.events", "oom_kill many\n", 0),
        ("what is this", "memory.events", EVENTS, 0),
    ],
)
def test_kills_are_counted(tmp_path, own, file, text, expected):
    own, root = put(tmp_path, own, file, text)
    assert cgroups.memory_kills(own, root) == expected


def test_shortages_of_memory_are_counted(tmp_path):
    assert cgroups.memory_shortages(*put(tmp_path, V2, "job/memory.events", EVENTS)) == 12
    assert cgroups.memory_shortages(*put(tmp_path, V1, "none", "")) == 0
    found = put(tmp_path, V1, "memory/job/7/memory.failcnt", "34\n")
    assert cgroups.memory_shortages(*found) == 34


@pytest.mark.parametrize(
    ("own", "file", "text"),
    [
        (V2, "job/7/cpu.stat", "usage_usec 9\nnr_throttled 4\nthrottled_usec 1500000\n"),
        (V2, "job/cpu.stat", "throttled_usec 1500000\n"),
        (V1, "cpu/job/cpu.stat", "nr_periods 9\nthrottled_time 1500000000\n"),
    ],
)
def test_the_time_without_a_processor_is_in_seconds(tmp_path, own, file, text):
    assert cgroups.throttled_seconds(*put(tmp_path, own, file, text)) == 1.5


def test_without_control_groups_there_is_nothing(tmp_path):
    missing = tmp_path / "missing"
    assert cgroups.memory_kills(missing, tmp_path) == 0
    assert cgroups.memory_shortages(missing, tmp_path) == 0
    assert cgroups.throttled_seconds(missing, tmp_path) == 0


# In its own group, as a process reads it of itself. To write a file takes memory, which the kernel
# can take back: the group is at its limit, and nobody is killed.
WRITE = """
import pathlib, sys
from tfhvd.system import cgroups
before = cgroups.memory_shortages()
with pathlib.Path(sys.argv[1]).open("wb") as file:
    for _ in range(96):
        file.write(bytes(1 << 20))
print(before, cgroups.memory_shortages(), cgroups.memory_kills())
"""


@pytest.mark.skipif(not groups.possible(), reason="only root can make control groups")
def test_the_kernel_counts_a_shortage_of_memory(tmp_path):
    with groups.words_in(*groups.memory(64 << 20)) as words:
        words += [sys.executable, "-c", WRITE, str(tmp_path / "file")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == 0, done.stderr
    before, after, kills = map(int, done.stdout.split())
    assert (before, kills) == (0, 0) and after > 0


SPIN = """
import time
from tfhvd.system import cgroups
while cgroups.throttled_seconds() == 0 and time.process_time() < 5: pass
print(cgroups.throttled_seconds())
"""


@pytest.mark.skipif(not groups.possible(), reason="only root can make control groups")
def test_the_kernel_counts_the_time_without_a_processor():
    with slow.limited(20) as words:
        words += [sys.executable, "-c", SPIN]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0
