"""The options of tfhvdrun."""

from __future__ import annotations

import argparse
from pathlib import Path

from tfhvd.launch import values
from tfhvd.launch.elastic_options import elastic_options
from tfhvd.launch.horovod_options import IDLE
from tfhvd.launch.parser import Idle, Parser, Row
from tfhvd.launch.rows import setting, switch, value


def make_parser() -> Parser:
    """The parser of tfhvdrun's options."""
    parser = Parser()
    parser.add_options("the job", *_job_options())
    parser.add_options(
        "how ranks are started and ended", *_time_options(), *_host_options(), *_mpi_options()
    )
    parser.add_options("ranks that are lost, or come", *elastic_options())
    parser.add_options("settings of tfhvd (docs/settings.md)", *_settings())
    parser.add_options(
        "instead of a job",
        switch("--check-build", "-cb", dest="check-build", help="print what tfhvd was built with"),
        switch("--version", dest="version", help="print the version"),
        switch("-h", "--help", dest="help", help="print this help"),
    )
    parser.add_options("", *_options_of_horovodrun())
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def where_options() -> list[Row]:
    """The options that say how many ranks there are, where, and how they are reached and bound.

    For other commands that start ranks; each as `Parser.add_options` takes it.
    """
    of_the_job = {"num_proc", "hosts", "hostfile", "config_file", "env"}
    rows = [row for row in _job_options() if row["dest"] in of_the_job]
    return [*rows, *_host_options(), *_mpi_options()]


def _options_of_horovodrun() -> list[Row]:
    """They stand together at the end of the help text."""
    hidden: Row = {"dest": "of_horovodrun", "help": argparse.SUPPRESS}
    rows: list[Row] = []
    for idle in IDLE:
        nargs = None if idle.values == 1 else idle.values
        rows.append({"flags": idle.flags, "action": Idle, "nargs": nargs, "const": idle.why})
    return [{**row, **hidden} for row in rows]


def _job_options() -> list[Row]:
    return [
        value(
            *("-np", "-n", "--num-proc"),
            dest="num_proc",
            metavar="N",
            convert=values.whole(1),
            help="number of ranks",
        ),
        value(
            *("-H", "-host", "--host", "--hosts"),
            dest="hosts",
            metavar="LIST",
            help="hosts and slots, as in a:4,joe@b:4,[fd00::3]:4",
        ),
        value(
            *("--hostfile", "-hostfile", "--host-file"),
            dest="hostfile",
            metavar="FILE",
            convert=Path,
            help="a file with one host a line, as in: node1 slots=4",
        ),
        value(
            "--config-file",
            dest="config_file",
            metavar="FILE",
            convert=Path,
            help="a YAML file of options, as in num-proc: 4; the command line has the last word",
        ),
        value(
            *("--env", "-x"),
            dest="env",
            metavar="NAME[=VALUE]",
            convert=values.variable,
            repeated=True,
            help="a variable for every rank (may be repeated)",
        ),
        switch(
            "--as-horovod",
            dest="as_horovod",
            help="let `import horovod.tensorflow` give tfhvd: scripts for Horovod run as they are",
        ),
        value(
            "--pdb",
            dest="pdb",
            metavar="RANK",
            convert=values.whole(0),
            help="let breakpoint() stop this rank only, which gets the terminal's input",
        ),
        switch("-v", "--verbose", dest="verbose", help="print the mpirun line and what it says"),
        switch(
            "--no-prefix", dest="no_prefix", help="do not put [rank] before each line of output"
        ),
        value(
            "--output",
            dest="output",
            metavar="all|rank0|DIR",
            convert=values.output,
            help="show the output of all ranks, of rank 0 only, or write it to DIR/rank.R.log",
        ),
        value(
            "--output-filename",
            dest="output_dir",
            metavar="DIR",
            convert=Path,
            help="also write each rank's output to DIR/rank.R/stdout and stderr",
        ),
        switch(
            *("--timestamps", "--prefix-output-with-timestamp", "-prefix-timestamp"),
            dest="timestamps",
            help="put the time before each line of output",
        ),
    ]


def _time_options() -> list[Row]:
    return [
        value(
            *("--start-timeout",),
            dest="start_timeout",
            metavar="S",
            convert=values.number,
            help="seconds for all ranks to start (default 120)",
        ),
        value(
            "--stop-timeout",
            dest="stop_timeout",
            metavar="S",
            convert=values.number,
            help="seconds between asking a rank to stop and killing it (default 5)",
        ),
        value(
            "--grace",
            dest="grace",
            metavar="S",
            convert=values.number,
            help="the same where tfhvdrun gets SIGTERM: time for ranks to save (default 30)",
        ),
        value(
            "--on-hang",
            dest="TFHVD_ON_HANG",
            metavar="WHAT",
            convert=values.one_of("warn", "abort"),
            help="when ranks wait and nothing goes on: say why (warn, the default), or also end",
        ),
        value(
            "--max-restarts",
            dest="max_restarts",
            metavar="N",
            convert=values.whole(0),
            help="how often a job that fails is started again (default 0)",
        ),
    ]


def _host_options() -> list[Row]:
    return [
        value(
            *("--network-interfaces", "--network-interface", "--nics"),
            dest="nics",
            metavar="LIST",
            convert=values.interfaces,
            help="network interfaces to use, as in eth0,eth1",
        ),
        value(
            *("-p", "--ssh-port"),
            dest="ssh_port",
            metavar="PORT",
            convert=values.port,
            help="port of ssh on the other hosts",
        ),
        value(
            *("-i", "--ssh-identity-file"),
            dest="ssh_identity_file",
            metavar="FILE",
            convert=values.key_file,
            help="the private key for ssh",
        ),
        switch(
            "--no-ssh-check",
            dest="no_ssh_check",
            help="do not try ssh to all hosts before the job is started",
        ),
        value(
            "--remote-shell",
            dest="remote_shell",
            metavar="FILE",
            convert=values.program,
            help="a program in the place of ssh: it is called as FILE HOST COMMAND...",
        ),
    ]


def _mpi_options() -> list[Row]:
    return [
        value(
            "--mpirun",
            dest="mpirun",
            metavar="FILE",
            convert=values.program,
            help="the mpirun to use",
        ),
        value(
            "--mpi-args",
            dest="mpi_args",
            metavar='"..."',
            convert=values.words,
            help="more arguments for mpirun, in quotes",
        ),
        value(
            "--binding-args",
            dest="binding_args",
            metavar='"..."',
            convert=values.words,
            help="how mpirun binds ranks to cores, in its own words (default: not at all)",
        ),
        switch(
            "--no-share-cores",
            dest="no_share_cores",
            help="let each rank start threads for all cores of its host",
        ),
        switch("--tcp", dest="tcp", help="let MPI use TCP only (Open MPI)"),
        value(
            "--transport",
            dest="transport",
            metavar="NAME",
            convert=values.one_of("auto", "mpi", "tcp"),
            help="how ranks are started and meet: mpi, by mpirun; tcp, without any MPI; auto, the "
            "first where there is an mpirun (the default)",
        ),
        setting("--gloo", dest="transport", to="tcp", help="the same as --transport tcp"),
        setting("--mpi", dest="transport", to="mpi", help="the same as --transport mpi"),
    ]


def _settings() -> list[Row]:
    marks, check = "TFHVD_TIMELINE_MARK_CYCLES", "TFHVD_STALL_CHECK_DISABLE"
    return [
        value(
            "--fusion-threshold-mb",
            dest="TFHVD_FUSION_THRESHOLD",
            metavar="MB",
            convert=values.megabytes,
            help="size of the fusion buffer in MiB",
        ),
        value(
            "--cycle-time-ms",
            dest="TFHVD_CYCLE_TIME",
            metavar="MS",
            convert=values.plain_number,
            help="longest time in ms that a ready tensor waits for company",
        ),
        value(
            "--cache-capacity",
            dest="TFHVD_CACHE_CAPACITY",
            metavar="N",
            convert=values.count,
            help="number of tensors in the response cache",
        ),
        setting(
            "--autotune",
            dest="TFHVD_AUTOTUNE",
            to="1",
            help="find better settings while the job runs; what is not faster beyond doubt is left",
        ),
        setting("--no-autotune", dest="TFHVD_AUTOTUNE", to="0", help="do not (the default)"),
        value(
            "--autotune-log-file",
            dest="TFHVD_AUTOTUNE_LOG",
            metavar="FILE",
            help="write what was compared there, as comma-separated values",
        ),
        setting("--no-stall-check", dest=check, to="1", help="report no stalled tensors"),
        setting("--stall-check", dest=check, to="0", help="report them (the default)"),
        value(
            "--stall-check-warning-time-seconds",
            dest="TFHVD_STALL_CHECK_TIME_SECONDS",
            metavar="S",
            convert=values.plain_number,
            help="seconds after which a tensor that some ranks lack is reported",
        ),
        value(
            "--stall-check-shutdown-time-seconds",
            dest="TFHVD_STALL_SHUTDOWN_TIME_SECONDS",
            metavar="S",
            convert=values.plain_number,
            help="seconds after which such a tensor ends the job",
        ),
        value(
            "--timeline-filename",
            dest="TFHVD_TIMELINE",
            metavar="FILE",
            help="write a timeline for chrome://tracing there, from rank 0, or with {rank} in it "
            "from each",
        ),
        setting(
            "--timeline-mark-cycles",
            dest=marks,
            to="1",
            help="mark in it where collectives that were agreed on together begin",
        ),
        setting("--no-timeline-mark-cycles", dest=marks, to="0", help="do not (the default)"),
        value(
            "--log-level",
            dest="TFHVD_LOG_LEVEL",
            metavar="LEVEL",
            convert=values.level,
            help=", ".join(values.LEVELS),
        ),
    ]
