"""The options of tfhvdrun: the one place that names them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfhvd.launch import values
from tfhvd.launch.horovod_options import IDLE, REFUSED
from tfhvd.launch.parser import Idle, Parser, Refused, Row, Value


def _switch(*flags: str, dest: str, help: str) -> Row:
    return {"flags": flags, "dest": dest, "help": help, "action": "store_true"}


def _setting(*flags: str, dest: str, to: str, help: str) -> Row:
    """A switch that gives a setting a value."""
    return {"flags": flags, "dest": dest, "help": help, "action": "store_const", "const": to}


def _value(
    *flags: str,
    dest: str,
    metavar: str,
    help: str,
    convert: Callable[[str], object] = str,
    **more: Any,
) -> Row:
    return {
        "flags": flags,
        "dest": dest,
        "metavar": metavar,
        "help": help,
        "action": Value,
        "convert": convert,
        **more,
    }


def make_parser() -> Parser:
    """The parser of tfhvdrun's options."""
    parser = Parser()
    parser.add_options("the job", *_job_options())
    parser.add_options(
        "how ranks are started and ended", *_time_options(), *_host_options(), *_mpi_options()
    )
    parser.add_options("settings of tfhvd (docs/settings.md)", *_settings())
    parser.add_options(
        "instead of a job",
        _switch("--check-build", "-cb", dest="check-build", help="print what tfhvd was built with"),
        _switch("--version", dest="version", help="print the version"),
        _switch("-h", "--help", dest="help", help="print this help"),
    )
    parser.add_options("", *_options_of_horovodrun())
    for flag, advice in REFUSED.items():
        parser.add_argument(flag, action=Refused, nargs="?", const=advice, help=argparse.SUPPRESS)
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
        _value(
            *("-np", "-n", "--num-proc"),
            dest="num_proc",
            metavar="N",
            convert=values.whole(1),
            help="number of ranks",
        ),
        _value(
            *("-H", "-host", "--host", "--hosts"),
            dest="hosts",
            metavar="LIST",
            help="hosts and slots, as in a:4,joe@b:4,[fd00::3]:4",
        ),
        _value(
            *("--hostfile", "-hostfile", "--host-file"),
            dest="hostfile",
            metavar="FILE",
            convert=Path,
            help="a file with one host a line, as in: node1 slots=4",
        ),
        _value(
            "--config-file",
            dest="config_file",
            metavar="FILE",
            convert=Path,
            help="a YAML file of options, as in num-proc: 4; the command line has the last word",
        ),
        _value(
            *("--env", "-x"),
            dest="env",
            metavar="NAME[=VALUE]",
            convert=values.variable,
            repeated=True,
            help="a variable for every rank (may be repeated)",
        ),
        _switch(
            "--as-horovod",
            dest="as_horovod",
            help="let `import horovod.tensorflow` give tfhvd: scripts for Horovod run as they are",
        ),
        _value(
            "--pdb",
            dest="pdb",
            metavar="RANK",
            convert=values.whole(0),
            help="let breakpoint() stop this rank only, which gets the terminal's input",
        ),
        _switch("-v", "--verbose", dest="verbose", help="print the mpirun line and what it says"),
        _switch(
            "--no-prefix", dest="no_prefix", help="do not put [rank] before each line of output"
        ),
        _value(
            "--output",
            dest="output",
            metavar="all|rank0|DIR",
            convert=values.output,
            help="show the output of all ranks, of rank 0 only, or write it to DIR/rank.R.log",
        ),
        _value(
            "--output-filename",
            dest="output_dir",
            metavar="DIR",
            convert=Path,
            help="also write each rank's output to DIR/rank.R/stdout and stderr",
        ),
        _switch(
            *("--timestamps", "--prefix-output-with-timestamp", "-prefix-timestamp"),
            dest="timestamps",
            help="put the time before each line of output",
        ),
    ]


def _time_options() -> list[Row]:
    return [
        _value(
            *("--start-timeout",),
            dest="start_timeout",
            metavar="S",
            convert=values.number,
            help="seconds for all ranks to start (default 120)",
        ),
        _value(
            "--stop-timeout",
            dest="stop_timeout",
            metavar="S",
            convert=values.number,
            help="seconds between asking a rank to stop and killing it (default 5)",
        ),
        _value(
            "--grace",
            dest="grace",
            metavar="S",
            convert=values.number,
            help="the same where tfhvdrun gets SIGTERM: time for ranks to save (default 30)",
        ),
        _value(
            "--on-hang",
            dest="on_hang",
            metavar="WHAT",
            convert=values.one_of("warn", "abort"),
            help="when ranks wait and nothing goes on: say why (warn, the default), or also end",
        ),
        _value(
            "--max-restarts",
            dest="max_restarts",
            metavar="N",
            convert=values.whole(0),
            help="how often a job that fails is started again (default 0)",
        ),
    ]


def _host_options() -> list[Row]:
    return [
        _value(
            *("--network-interfaces", "--network-interface", "--nics"),
            dest="nics",
            metavar="LIST",
            convert=values.interfaces,
            help="network interfaces to use, as in eth0,eth1",
        ),
        _value(
            *("-p", "--ssh-port"),
            dest="ssh_port",
            metavar="PORT",
            convert=values.port,
            help="port of ssh on the other hosts",
        ),
        _value(
            *("-i", "--ssh-identity-file"),
            dest="ssh_identity_file",
            metavar="FILE",
            convert=values.key_file,
            help="the private key for ssh",
        ),
        _switch(
            "--no-ssh-check",
            dest="no_ssh_check",
            help="do not try ssh to all hosts before the job is started",
        ),
        _value(
            "--remote-shell",
            dest="remote_shell",
            metavar="FILE",
            convert=values.program,
            help="a program in the place of ssh: it is called as FILE HOST COMMAND...",
        ),
    ]


def _mpi_options() -> list[Row]:
    return [
        _value(
            "--mpirun",
            dest="mpirun",
            metavar="FILE",
            convert=values.program,
            help="the mpirun to use",
        ),
        _value(
            "--mpi-args",
            dest="mpi_args",
            metavar='"..."',
            convert=values.words,
            help="more arguments for mpirun, in quotes",
        ),
        _value(
            "--binding-args",
            dest="binding_args",
            metavar='"..."',
            convert=values.words,
            help="how mpirun binds ranks to cores, in its own words (default: not at all)",
        ),
        _switch(
            "--no-share-cores",
            dest="no_share_cores",
            help="let each rank start threads for all cores of its host",
        ),
        _switch("--tcp", dest="tcp", help="let MPI use TCP only (Open MPI)"),
        _value(
            "--transport",
            dest="transport",
            metavar="NAME",
            convert=values.one_of("auto", "mpi", "tcp"),
            help="how ranks are started and meet: mpi, by mpirun; tcp, without any MPI; auto, the "
            "first where there is an mpirun (the default)",
        ),
        _setting("--gloo", dest="transport", to="tcp", help="the same as --transport tcp"),
        _setting("--mpi", dest="transport", to="mpi", help="the same as --transport mpi"),
        _switch(
            "--elastic",
            dest="elastic",
            help="go on without ranks that are lost: no step is. Needs no MPI, and uses none",
        ),
        _value(
            *("--min-np", "--min-num-proc"),
            dest="min_np",
            metavar="N",
            convert=values.whole(1),
            help="the same, as long as so many ranks are left (default 1)",
        ),
        _value(
            "--evict-after",
            dest="evict_after",
            metavar="S",
            convert=values.number,
            help="go on, too, without ranks that are stopped, or that keep the others and do "
            "nothing, for S seconds (default: wait for them)",
        ),
    ]


def _settings() -> list[Row]:
    marks, check = "TFHVD_TIMELINE_MARK_CYCLES", "TFHVD_STALL_CHECK_DISABLE"
    return [
        _value(
            "--fusion-threshold-mb",
            dest="TFHVD_FUSION_THRESHOLD",
            metavar="MB",
            convert=values.megabytes,
            help="size of the fusion buffer in MiB",
        ),
        _value(
            "--cycle-time-ms",
            dest="TFHVD_CYCLE_TIME",
            metavar="MS",
            convert=values.plain_number,
            help="longest time in ms that a ready tensor waits for company",
        ),
        _value(
            "--cache-capacity",
            dest="TFHVD_CACHE_CAPACITY",
            metavar="N",
            convert=values.count,
            help="number of tensors in the response cache",
        ),
        _setting("--no-stall-check", dest=check, to="1", help="report no stalled tensors"),
        _setting("--stall-check", dest=check, to="0", help="report them (the default)"),
        _value(
            "--stall-check-warning-time-seconds",
            dest="TFHVD_STALL_CHECK_TIME_SECONDS",
            metavar="S",
            convert=values.plain_number,
            help="seconds after which a tensor that some ranks lack is reported",
        ),
        _value(
            "--stall-check-shutdown-time-seconds",
            dest="TFHVD_STALL_SHUTDOWN_TIME_SECONDS",
            metavar="S",
            convert=values.plain_number,
            help="seconds after which such a tensor ends the job",
        ),
        _value(
            "--timeline-filename",
            dest="TFHVD_TIMELINE",
            metavar="FILE",
            help="write a timeline for chrome://tracing there, from rank 0, or with {rank} in it "
            "from each",
        ),
        _setting(
            "--timeline-mark-cycles",
            dest=marks,
            to="1",
            help="mark in it where collectives that were agreed on together begin",
        ),
        _setting("--no-timeline-mark-cycles", dest=marks, to="0", help="do not (the default)"),
        _value(
            "--log-level",
            dest="TFHVD_LOG_LEVEL",
            metavar="LEVEL",
            convert=values.level,
            help=", ".join(values.LEVELS),
        ),
    ]
