"""Options from a YAML file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tfhvd.launch.errors import UsageError
from tfhvd.launch.options.config_file import words
from tfhvd.launch.options.parse import parse
from tfhvd.launch.options.table import make_parser
from tfhvd.launch.state.hosts import Host

HOROVOD = """
verbose: true
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 2.5
  cache_capacity: 64
  hierarchical_allreduce: false
autotune:
  enabled: true
  log_file: a.csv
  warmup_samples: 3
timeline:
  filename: t.json
  mark_cycles: true
stall_check:
  enabled: false
  warning_time_seconds: 30
  shutdown_time_seconds: null
library_options:
  mpi_args: --mca x 'y z'
  num_nccl_streams: 2
logging:
  level: INFO
"""


@pytest.fixture
def file(tmp_path):
    pytest.importorskip("yaml")
    return tmp_path / "options.yaml"


def words_of(data: dict[str, object]) -> list[str]:
    return list(words(data, make_parser()))


def test_horovods_sections(file):
    file.write_text(HOROVOD)
    job = parse(["--config-file", str(file), "-np", "2", "true"])
    assert job.settings == {
        "TFHVD_FUSION_THRESHOLD": str(32 << 20),
        "TFHVD_CYCLE_TIME": "2.5",
        "TFHVD_CACHE_CAPACITY": "64",
        "TFHVD_AUTOTUNE": "1",
        "TFHVD_AUTOTUNE_LOG": "a.csv",
        "TFHVD_TIMELINE": "t.json",
        "TFHVD_TIMELINE_MARK_CYCLES": "1",
        "TFHVD_STALL_CHECK_DISABLE": "1",
        "TFHVD_STALL_CHECK_TIME_SECONDS": "30",
        "TFHVD_LOG_LEVEL": "info",
    }
    assert job.verbose and job.mpi_args == ("--mca", "x", "y z")
    assert [text.partition(" ")[0] for text in job.warnings] == [
        *("--no-hierarchical-allreduce", "--autotune-warmup-samples", "--num-nccl-streams"),
    ]


def test_every_option_by_its_name():
    assert words_of({"num-proc": 4, "hosts": ["a:2", "b:2"], "tcp": True}) == [
        *("--num-proc=4", "--hosts=a:2,b:2", "--tcp"),
    ]
    assert words_of({"np": 2, "output": "rank0", "verbose": False}) == ["-np=2", "--output=rank0"]
    assert words_of({"env": {"A": 1, "B": None}}) == ["--env=A=1", "--env=B"]
    assert words_of({"env": ["A=1", "B"]}) == ["--env=A=1", "--env=B"]
    assert words_of({"prefix": False, "share_cores": True}) == ["--no-prefix"]
    assert words_of({"blacklist_cooldown_range": [1, 2]}) == [
        "--blacklist-cooldown-range",
        "1",
        "2",
    ]


def test_the_command_line_has_the_last_word(file):
    file.write_text("num_proc: 8\nhosts: a:4,b:4\nenv: {A: file, B: file}\noutput: rank0\n")
    job = parse(["-np", "2", "--config-file", str(file), "--env", "A=line", "true"])
    assert job.num_proc == 2 and job.hosts == (Host("a", 4), Host("b", 4)) and job.output == 0
    assert dict(job.env) == {"A": "line", "B": "file"}
    job = parse(["--output", "all", "--config-file", str(file), "true"])
    assert job.num_proc == 8 and job.output is None
    hostfile = file.with_name("hosts")
    hostfile.write_text("c slots=9\n")
    job = parse(["--config-file", str(file), "--hostfile", str(hostfile), "true"])
    assert job.hosts == (Host("c", 9),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("params: {fusion_threshold: 3}", "there is no option fusion_threshold. Did you mean fus"),
        ("zzz: 3", "there is no option zzz. tfhvdrun --help lists the options"),
        ("verbose: 2", "verbose must be true or false. Received: 2"),
        ("num_proc: many", "--num-proc must be a whole number, at least 1. Received: 'many'"),
        ("- a", "it must have lines as in num-proc: 4"),
        ("a: [", "it is not YAML: "),
    ],
)
def test_a_mistake_names_the_file(file, text, says):
    file.write_text(text)
    with pytest.raises(UsageError) as e:
        parse(["--config-file", str(file), "-np", "2", "true"])
    assert str(e.value).startswith(f"--config-file {file}: {says}")
    assert "\n" not in str(e.value)


def test_a_file_that_there_is_not(file):
    with pytest.raises(UsageError, match="it cannot be read: No such file or directory"):
        parse(["--config-file", str(file), "-np", "2", "true"])
    file.write_text("")
    assert parse(["--config-file", str(file), "-np", "2", "true"]).num_proc == 2


def test_without_pyyaml(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UsageError, match=r"takes PyYAML to read it\. Type: pip install pyyaml"):
        parse(["--config-file", str(Path(__file__)), "-np", "2", "true"])
