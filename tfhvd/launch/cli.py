"""``tfhvdrun``: start here. Reads the words, prepares the mpirun line, and supervises it."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tfhvd._version import __version__
from tfhvd.launch import address, arguments, command_line, environment, legacy_keras, mpi
from tfhvd.launch.errors import UsageError
from tfhvd.launch.job import Job
from tfhvd.launch.output import Output
from tfhvd.launch.supervisor import Supervisor


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code: that of the rank that failed first; 2: usage."""
    try:
        job = arguments.parse(sys.argv[1:] if argv is None else argv, os.environ)
        if job.task != "run":
            print(_answer(job.task))
            return 0
        return _run(job)
    except UsageError as error:
        print(f"tfhvdrun: error: {error}", file=sys.stderr)
        return 2


def _answer(task: str) -> str:
    if task == "help":
        return arguments.help_text()
    if task == "version":
        return f"tfhvd {__version__}"
    import tfhvd  # The only task that loads TensorFlow.

    return str(tfhvd.build_info())


def _run(job: Job) -> int:
    found = mpi.identify(mpi.find_mpirun(job.mpirun))
    place = command_line.Place(environment.physical_cores(), environment.in_allocation(os.environ))
    remote = command_line.is_remote(job, place)
    env = environment.build(job, os.environ, root=os.geteuid() == 0)
    if not remote:
        check_command(job.command[0], env.get("PATH", os.defpath))
    output = Output(
        job.num_proc,
        prefix=job.prefix,
        folder=job.output_dir,
        show=job.output,
        timestamps=job.timestamps,
        startup_lines=job.verbose,
    )
    listener = address.listen(remote=remote)
    env[environment.TOKEN] = token = secrets.token_hex(16)
    env[environment.ADDRESS] = address.addresses(
        listener.getsockname()[1],
        remote=remote,
        hosts=[host.name for host in job.hosts],
        nics=job.nics,
    )
    line = command_line.build(job, found, place, worker_words(), environment.exported(job, env))
    for warning in job.warnings:
        output.message(f"tfhvdrun: warning: {warning}\n".encode())
    if environment.chooses_legacy_keras(job, os.environ):
        output.message(f"tfhvdrun: --as-horovod: {legacy_keras.NOTE}\n".encode())
    if isinstance(job.output, Path):
        output.message(f"tfhvdrun: the ranks' output goes to {job.output}/rank.*.log\n".encode())
    if job.verbose:
        output.message(f"tfhvdrun: {shlex.join(line)}\n".encode())
    supervisor = Supervisor(
        job.num_proc,
        listener,
        token,
        output,
        start_timeout=job.start_timeout,
        stop_timeout=job.stop_timeout,
        stopped_limit=environment.stall_limit(env),
        debugged=job.pdb,
        verbose=job.verbose,
    )
    return supervisor.run(line, env)


def worker_words() -> list[str]:
    """What starts a worker: by path and without site-packages, which takes 20 ms."""
    return [sys.executable, "-E", "-S", str(Path(__file__).absolute().with_name("worker.py"))]


def check_command(name: str, path: str) -> None:
    """Raises UsageError where this machine cannot start the command."""
    if shutil.which(name, path=path) is not None:
        return
    if Path(name).is_file():
        python = f"python {name}" if name.endswith(".py") else f"bash {name}"
        raise UsageError(
            f"{name} is not executable. Type: tfhvdrun ... {python}, or: chmod +x {name}"
        )
    raise UsageError(f"command not found: {name}. Name a program on PATH, or give its path")


if __name__ == "__main__":
    sys.exit(main())
