"""What slows a command down ends with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import children

PROGRAM = Path(__file__).with_name("slow.py")


def slow(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PROGRAM), *words], capture_output=True, text=True)


def test_beside_a_busy_process():
    # The one beside it is this shell's sibling.
    done = slow("--busy", "1", "sh", "-c", "pgrep -P $PPID -f '[w]hile True'; exit 3")
    assert done.returncode == 3, done.stderr
    [beside] = done.stdout.split()
    assert not Path("/proc", beside).exists()


def test_it_is_asked_to_end():
    words = [sys.executable, str(PROGRAM), "--busy", "1", "sh", "-c", "echo; exec sleep 60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as program:
        program.stdout.read(1)
        started = children.of(program.pid)
        program.terminate()
        assert program.wait(10) == 143
    assert len(started) == 2 and not any(Path(f"/proc/{child}").exists() for child in started)


def test_with_a_limit():
    done = slow("--quota", "50", "sh", "-c", "cat /proc/self/cgroup; exit 4")
    if done.returncode == 1:
        assert "slow.py: cannot limit the processor's time:" in done.stderr
        assert "Run as root" in done.stderr
        return
    assert done.returncode == 4, done.stderr
    groups = [line.rpartition("/")[2] for line in done.stdout.splitlines()]
    [own] = {name for name in groups if name.startswith("tfhvd-test-")}
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{own}"))


def test_a_mistake_is_said():
    assert "there is no command to run" in slow("--busy", "1").stderr
    assert "Received: --quota 0" in slow("--quota", "0", "true").stderr
