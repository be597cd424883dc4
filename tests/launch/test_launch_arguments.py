"""Words -> Job, and one clear line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfhvd.launch import cli
from tfhvd.launch.errors import UsageError
from tfhvd.launch.options.parse import parse
from tfhvd.launch.options.table import make_parser
from tfhvd.launch.state.hosts import Host


def test_the_command_begins_at_the_first_word_that_is_no_option():
    job = parse(["-np", "2", "-v", "python", "train.py", "-np", "7", "--verbose"])
    assert job.num_proc == 2 and job.verbose
    assert job.command == ("python", "train.py", "-np", "7", "--verbose")


def test_two_dashes_end_the_options():
    assert parse(["-np", "1", "--", "-odd-name", "x"]).command == ("-odd-name", "x")


def test_horovod_options_become_settings():
    words = (
        "--num-proc=3 --fusion-threshold-mb 0.5 --cycle-time-ms=2.5 --cache-capacity 64 "
        "--stall-check-warning-time-seconds 30 --stall-check-shutdown-time-seconds 90 "
        "--timeline-filename t.{rank}.json --timeline-mark-cycles --log-level DEBUG python t.py"
    )
    job = parse(words.split())
    assert job.settings == {
        "TFHVD_FUSION_THRESHOLD": "524288",
        "TFHVD_CYCLE_TIME": "2.5",
        "TFHVD_CACHE_CAPACITY": "64",
        "TFHVD_STALL_CHECK_TIME_SECONDS": "30",
        "TFHVD_STALL_SHUTDOWN_TIME_SECONDS": "90",
        "TFHVD_TIMELINE": "t.{rank}.json",
        "TFHVD_TIMELINE_MARK_CYCLES": "1",
        "TFHVD_LOG_LEVEL": "debug",
    }


def test_the_other_options():
    words = (
        "-np 2 -p 2222 --nics eth0,eth1 --env A=b=c --env D --output-filename logs --no-prefix "
        "--start-timeout 5 --stop-timeout 1.5 --grace 60 --max-restarts 3 --mpi-args"
    )
    job = parse([*words.split(), "--mca x 'y z'", "true"])
    assert job.ssh_port == 2222 and job.nics == ("eth0", "eth1")
    assert job.env == (("A", "b=c"), ("D", None))
    assert job.mpi_args == ("--mca", "x", "y z")
    assert job.output_dir == Path("logs") and not job.prefix
    assert (job.start_timeout, job.stop_timeout, job.grace) == (5.0, 1.5, 60.0)
    assert job.max_restarts == 3


@pytest.mark.parametrize(
    ("words", "output"),
    [("", None), ("all", None), ("rank0", 0), ("rank11", 11), ("rank", Path("rank"))],
)
def test_whose_output_is_shown(words, output):
    options = ["--output", words] if words else []
    assert parse(["-np", "12", *options, "true"]).output == output


def test_without_np_the_slots_are_the_number(tmp_path):
    assert parse(["-H", "a:2,b,a:3", "true"]).num_proc == 6
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# ours\na slots=2 max_slots=4\n\nb:3  # fast\nc\n")
    job = parse(["-hostfile", str(hostfile), "true"])
    assert job.hosts == (Host("a", 2), Host("b", 3), Host("c", 1)) and job.num_proc == 6


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "no command to run. Usage: tfhvdrun -np N"),
        ("-np 2", "no command to run"),
        ("true", "number of ranks is missing. Type -np N"),
        ("-np", "-np needs a value: -np N"),
        ("-np 0 true", "-np must be a whole number, at least 1. Received: '0'"),
        ("-np -3 true", "Received: '-3'"),
        ("-np python train.py", "-np must be a whole number, at least 1. Received: 'python'"),
        ("-np 2 --fusion 3 true", "unknown option --fusion. Did you mean --fusion-threshold-mb?"),
        ("-np 2 --mpi-args --quiet true", "written with =, as in --mpi-args=--quiet"),
        ("-np 2 --remote-shell sh -p 22 true", "--ssh-port is for ssh, in whose place"),
        ("-np 2 -i /no/key true", "-i must be a file with a private key. Received: '/no/key'"),
        ("-np 2 --verbos true", "Did you mean --verbose?"),
        ("-np 2 --zzz true", "unknown option --zzz. tfhvdrun --help lists the options"),
        ("-np 2 --no-prefix=1 true", "--no-prefix takes no value"),
        ("-H a:x true", "-H has a malformed part 'a:x'"),
        ("-H a:0 true", "malformed part 'a:0'"),
        ("-H a:1,,b:1 true", "-H has a comma without a host next to it. Received: 'a:1,,b:1'"),
        ("-H localhost:1, true", "a comma without a host next to it. Received: 'localhost:1,'"),
        ("-np 5 -H a:1,b:2 true", "a:1,b:2 gives 3. Type -np 3, or give more slots, as in -H"),
        ("-H a --hostfile f true", "exclude each other"),
        ("--hostfile /no/such/file true", "cannot read the host file /no/such/file: No such file"),
        ("-np 2 --env 3=4 true", "--env must be NAME or NAME=VALUE. Received: '3=4'"),
        ("-np 2 -p 99999 true", "-p must be a port number"),
        ("-np 2 --cycle-time-ms -1 true", "--cycle-time-ms must be a number, at least 0"),
        ("-np 2 --log-level loud true", "--log-level must be one of trace, debug"),
        ("-np 2 --output rank2 true", "--output rank2 names a rank that this job has not. Its r"),
        ("-np 2 no-such-command-here", "command not found: no-such-command-here"),
        ("-np 2 --mpirun /no/mpirun true", "--mpirun must be a program that can be run."),
        ("-np 2 --mpirun true true", "is neither Open MPI nor MPICH"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_code_2(line, says, capsys):
    assert cli.main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tfhvdrun: error: ") and captured.err.count("\n") == 1
    assert says in captured.err


def test_options_of_horovodrun_without_an_effect_are_taken_with_a_warning(capsys):
    words = (
        "-np 1 --disable-cache --autotune-warmup-samples 3 --jsrun "
        "--thread-affinity=4 --hierarchical-allreduce --mpi true --gloo"
    )
    job = parse(words.split())
    assert job.command == ("true", "--gloo")
    assert [warning.partition(" ")[0] for warning in job.warnings] == [
        *("--disable-cache", "--autotune-warmup-samples", "--jsrun"),
        *("--thread-affinity", "--hierarchical-allreduce"),
    ]
    assert job.warnings[0] == (
        "--disable-cache has no effect: the launcher keeps nothing between jobs"
    )


def test_options_of_horovodrun_with_a_meaning(tmp_path):
    key = tmp_path / "key"
    key.touch()
    words = "-np 1 --no-stall-check --no-timeline-mark-cycles --tcp --binding-args"
    job = parse([*words.split(), "--bind-to core", "-i", str(key), "-p", "23", "true"])
    assert job.transport == "auto"
    for option, transport in (("--gloo", "tcp"), ("--mpi", "mpi"), ("--transport=tcp", "tcp")):
        assert parse(["-np", "1", option, "true"]).transport == transport
    assert job.settings == {"TFHVD_STALL_CHECK_DISABLE": "1", "TFHVD_TIMELINE_MARK_CYCLES": "0"}
    assert job.tcp and job.binding_args == ("--bind-to", "core")
    assert job.ssh_args == ("-p", "23", "-i", str(key))
    assert job.warnings == ()


def test_a_value_may_begin_with_a_dash():
    assert parse(["-np", "1", "--mpi-args=--quiet -v", "true"]).mpi_args == ("--quiet", "-v")


def test_a_malformed_host_file_names_its_line(tmp_path):
    hostfile = tmp_path / "hosts"
    hostfile.write_text("a slots=2\nb slots=two\n")
    with pytest.raises(UsageError, match=r"hosts, line 2: 'b slots=two'. Expected: node1 slots=4"):
        parse(["--hostfile", str(hostfile), "true"])
    hostfile.write_text("# nothing\n")
    with pytest.raises(UsageError, match="names no host"):
        parse(["--hostfile", str(hostfile), "true"])


def test_what_is_not_executable_gets_the_words_to_type(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("")
    with pytest.raises(UsageError, match=rf"Type: tfhvdrun ... python {path}"):
        cli.check_command(str(path), "/usr/bin")


def test_help_names_every_option(capsys):
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(flag in text for option in make_parser().options for flag in option.option_strings)


def test_version(capsys):
    assert cli.main(["-v", "--version"]) == 0
    assert capsys.readouterr().out.startswith("tfhvd ")
