"""The options of tfhvdrun."""

from __future__ import annotations

import argparse
from pathlib import Path

from tfhvd.launch.options import converters
from tfhvd.launch.options.elastic_table import elastic_options
from tfhvd.launch.options.horovod_table import IDLE
from tfhvd.launch.options.parser import Idle, Parser, Row, setting, switch, value
from tfhvd.network import ports, tokens
from tfhvd.protocol import variables


def make_parser() -> Parser:
    """Returns the parser of tfhvdrun's options."""
    parser = Parser()
    parser.add_options("the job", *_job_options())
    parser.add_options(
        "how ranks are started and ended", *_time_options(), *_host_options(), *_mpi_options()
    )
    parser.add_options("elastic jobs", *elastic_options())
    parser.add_options(
        "settings of tfhvd (docs/settings.md)", *_settings(), *_settings_of_reports()
    )
    parser.add_options(
        "instead of a job",
        switch("--check-build", "-cb", dest="check-build", help="Print what tfhvd was built with."),
        switch("--version", dest="version", help="Print the version."),
        switch("-h", "--help", dest="help", help="Print this help."),
    )
    parser.add_options("", *_options_of_horovodrun())
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def where_options() -> list[Row]:
    """Returns the options for the number of ranks, the hosts, ssh and binding, as rows.

    Other commands that start ranks use them.
    """
    of_the_job = {"num_proc", "hosts", "hostfile", "config_file", "env"}
    rows = [row for row in _job_options() if row["dest"] in of_the_job]
    return [*rows, *_host_options(), *_mpi_options()]


def _options_of_horovodrun() -> list[Row]:
    """Returns the options of horovodrun, which the end of the help text lists together."""
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
            convert=converters.whole(1),
            help="Number of ranks.",
        ),
        value(
            *("-H", "-host", "--host", "--hosts"),
            dest="hosts",
            metavar="LIST",
            help="Hosts and their slots, as in a:4,joe@b:4,[fd00::3]:4.",
        ),
        value(
            *("--hostfile", "-hostfile", "--host-file"),
            dest="hostfile",
            metavar="FILE",
            convert=Path,
            help="File with one host per line, as in: node1 slots=4.",
        ),
        value(
            "--config-file",
            dest="config_file",
            metavar="FILE",
            convert=Path,
            help="YAML file of options, as in num-proc: 4; options of the command line "
            "override it.",
        ),
        value(
            *("--env", "-x"),
            dest="env",
            metavar="NAME[=VALUE]",
            convert=converters.variable,
            repeated=True,
            help="Variable to set on every rank (may be repeated).",
        ),
        switch(
            "--as-horovod",
            dest="as_horovod",
            help="Make `import horovod.tensorflow` import tfhvd: scripts for Horovod run "
            "unchanged.",
        ),
        value(
            "--pdb",
            dest="pdb",
            metavar="RANK",
            convert=converters.whole(0),
            help="Let breakpoint() stop this rank only, and give it the terminal's input.",
        ),
        switch(
            "-v",
            "--verbose",
            dest="verbose",
            help="Print the mpirun line and everything that mpirun prints.",
        ),
        switch(
            "--no-prefix", dest="no_prefix", help="Do not put [rank] before each line of output."
        ),
        value(
            "--output",
            dest="output",
            metavar="all|rank0|DIR",
            convert=converters.output,
            help="Show the output of all ranks, of rank 0 only, or write it to DIR/rank.R.log.",
        ),
        value(
            "--output-filename",
            dest="output_dir",
            metavar="DIR",
            convert=Path,
            help="Also write each rank's output to DIR/rank.R/stdout and stderr.",
        ),
        switch(
            *("--timestamps", "--prefix-output-with-timestamp", "-prefix-timestamp"),
            dest="timestamps",
            help="Put the time before each line of output.",
        ),
    ]


def _time_options() -> list[Row]:
    return [
        value(
            *("--start-timeout",),
            dest="start_timeout",
            metavar="S",
            convert=converters.number,
            help="Seconds in which all ranks must start (default 120).",
        ),
        value(
            "--stop-timeout",
            dest="stop_timeout",
            metavar="S",
            convert=converters.number,
            help="Seconds between asking a rank to stop and killing it (default 5).",
        ),
        value(
            "--grace",
            dest="grace",
            metavar="S",
            convert=converters.number,
            help="Seconds that ranks have to save and stop after tfhvdrun gets SIGTERM "
            "(default 30).",
        ),
        value(
            "--on-hang",
            dest="TFHVD_ON_HANG",
            metavar="WHAT",
            convert=converters.one_of("warn", "abort"),
            help="When a job hangs, report the cause (warn, the default), or also end the "
            "job (abort).",
        ),
        value(
            "--max-restarts",
            dest="max_restarts",
            metavar="N",
            convert=converters.whole(0),
            help="Number of times that a failed job is started again (default 0).",
        ),
        value(
            "--preemption-command",
            dest=variables.PREEMPTION_COMMAND,
            metavar="CMD",
            help="Command of a shell that one rank of each host runs again and again: exit code 0 "
            "means that the host is about to be taken away, so that all ranks save and stop.",
        ),
        value(
            "--preemption-interval",
            dest=variables.PREEMPTION_INTERVAL,
            metavar="S",
            convert=converters.plain_number,
            help="Seconds between two runs of that command (default 5).",
        ),
    ]


def _host_options() -> list[Row]:
    return [
        value(
            *("--network-interfaces", "--network-interface", "--nics"),
            dest="nics",
            metavar="LIST",
            convert=converters.interfaces,
            help="Network interfaces to use, as in eth0,eth1.",
        ),
        value(
            "--ports",
            dest=ports.SETTING,
            metavar="FIRST-LAST",
            convert=converters.port_range,
            help="Ports that the job's hosts connect to, as in 20000-20100 (default: any).",
        ),
        setting(
            "--encrypt",
            dest=tokens.SETTING,
            to="1",
            help="Encrypt the launcher's connections; data of collectives stays unencrypted.",
        ),
        value(
            *("-p", "--ssh-port"),
            dest="ssh_port",
            metavar="PORT",
            convert=converters.port,
            help="Port of ssh on the other hosts.",
        ),
        value(
            *("-i", "--ssh-identity-file"),
            dest="ssh_identity_file",
            metavar="FILE",
            convert=converters.key_file,
            help="Private key for ssh.",
        ),
        switch(
            "--no-ssh-check",
            dest="no_ssh_check",
            help="Do not try ssh to all hosts before the job starts.",
        ),
        value(
            "--remote-shell",
            dest="remote_shell",
            metavar="FILE",
            convert=converters.program,
            help="Program to use instead of ssh; it is called as FILE HOST COMMAND...",
        ),
    ]


def _mpi_options() -> list[Row]:
    return [
        value(
            "--mpirun",
            dest="mpirun",
            metavar="FILE",
            convert=converters.program,
            help="mpirun to use.",
        ),
        value(
            "--mpi-args",
            dest="mpi_args",
            metavar='"..."',
            convert=converters.words,
            help="More arguments for mpirun, in quotes.",
        ),
        value(
            "--binding-args",
            dest="binding_args",
            metavar='"..."',
            convert=converters.words,
            help="mpirun's arguments for binding ranks to cores, in quotes (default: do not bind).",
        ),
        switch(
            "--no-share-cores",
            dest="no_share_cores",
            help="Let each rank start threads for all cores of its host.",
        ),
        switch("--tcp", dest="tcp", help="Let MPI use TCP only (Open MPI)."),
        value(
            "--transport",
            dest="transport",
            metavar="NAME",
            convert=converters.one_of("auto", "mpi", "tcp"),
            help="How ranks start and connect: mpi (by mpirun), tcp (no MPI), auto (mpi if "
            "there is one).",
        ),
        setting("--gloo", dest="transport", to="tcp", help="Short for --transport tcp."),
        setting("--mpi", dest="transport", to="mpi", help="Short for --transport mpi."),
    ]


def _settings() -> list[Row]:
    check = "TFHVD_STALL_CHECK_DISABLE"
    return [
        value(
            "--fusion-threshold-mb",
            dest="TFHVD_FUSION_THRESHOLD",
            metavar="MB",
            convert=converters.megabytes,
            help="Size of the fusion buffer in MiB.",
        ),
        value(
            "--cycle-time-ms",
            dest="TFHVD_CYCLE_TIME",
            metavar="MS",
            convert=converters.plain_number,
            help="Maximum time in ms that a ready tensor waits to be fused with others.",
        ),
        value(
            "--cache-capacity",
            dest="TFHVD_CACHE_CAPACITY",
            metavar="N",
            convert=converters.count,
            help="Number of tensors in the response cache.",
        ),
        setting(
            "--autotune",
            dest="TFHVD_AUTOTUNE",
            to="1",
            help="Tune settings while the job runs; keep only changes that are "
            "significantly faster.",
        ),
        setting(
            "--no-autotune", dest="TFHVD_AUTOTUNE", to="0", help="Do not tune settings (default)."
        ),
        value(
            "--autotune-log-file",
            dest="TFHVD_AUTOTUNE_LOG",
            metavar="FILE",
            help="Write what autotuning compared to FILE, as comma-separated values.",
        ),
        setting("--no-stall-check", dest=check, to="1", help="Do not report stalled tensors."),
        setting("--stall-check", dest=check, to="0", help="Report stalled tensors (default)."),
        value(
            "--stall-check-warning-time-seconds",
            dest="TFHVD_STALL_CHECK_TIME_SECONDS",
            metavar="S",
            convert=converters.plain_number,
            help="Seconds after which a tensor that some ranks have not submitted is reported.",
        ),
        value(
            "--stall-check-shutdown-time-seconds",
            dest="TFHVD_STALL_SHUTDOWN_TIME_SECONDS",
            metavar="S",
            convert=converters.plain_number,
            help="Seconds after which a stalled tensor ends the job.",
        ),
    ]


def _settings_of_reports() -> list[Row]:
    marks = "TFHVD_TIMELINE_MARK_CYCLES"
    return [
        value(
            "--timeline-filename",
            dest="TFHVD_TIMELINE",
            metavar="FILE",
            help="Write a timeline for `tfhvd timeline` to FILE, from rank 0, or from each "
            "if it has {rank}.",
        ),
        setting(
            "--timeline-mark-cycles",
            dest=marks,
            to="1",
            help="Mark in the timeline where each batch of agreed collectives begins.",
        ),
        setting(
            "--no-timeline-mark-cycles",
            dest=marks,
            to="0",
            help="Do not mark batches of collectives in the timeline (default).",
        ),
        value(
            "--metrics-port",
            dest="TFHVD_METRICS_PORT",
            metavar="PORT",
            convert=converters.port_text,
            help="Serve each rank's metrics to Prometheus on this port plus its local rank.",
        ),
        value(
            "--metrics-address",
            dest="TFHVD_METRICS_ADDRESS",
            metavar="ADDRESS",
            help="Address that --metrics-port listens on (default 127.0.0.1: this host only).",
        ),
        value(
            "--log-level",
            dest="TFHVD_LOG_LEVEL",
            metavar="LEVEL",
            convert=converters.level,
            help="Level of log lines: " + ", ".join(converters.LEVELS) + ".",
        ),
    ]
