"""How many processes the kernel has killed for memory, by both versions of control groups."""

from __future__ import annotations

import pytest

from tfhvd.launch import memory_kills

V1 = "9:name=systemd:/\n4:memory:/job/7\n1:cpu:/\n"
V2 = "0::/job/7\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
EVENTS = "low 0\nhigh 0\nmax 12\noom 5\noom_kill 2\noom_group_kill 0\n"


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
    (tmp_path / "own").write_text(own)
    path = tmp_path / "groups" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert memory_kills.count(tmp_path / "own", tmp_path / "groups") == expected


def test_without_control_groups_there_are_none(tmp_path):
    assert memory_kills.count(tmp_path / "missing", tmp_path) == 0
