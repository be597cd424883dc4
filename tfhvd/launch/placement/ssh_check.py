"""Checks before a job on several hosts that ssh reaches all of them without a password.

With `--remote-shell` it checks the program that replaces ssh. Without this check mpirun would
report only one unreachable host, late, and in words that do not say what to type.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfhvd.launch.state.hosts import Host, is_local
from tfhvd.launch.state.job_spec import Job

LIMIT = 9.0  # seconds for all hosts together; with the start of Python a report takes at most ten
_CONNECT = 8  # seconds for ssh's ConnectTimeout: ssh's message is better than ours

# With one of these variables mpirun does not start its daemons by ssh.
_OTHERS = (
    *("OMPI_MCA_plm", "PRTE_MCA_plm", "OMPI_MCA_plm_rsh_agent", "OMPI_MCA_plm_ssh_agent"),
    *("PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER", "HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP"),
)
_ARGUMENTS = ("plm_rsh_args", "plm_ssh_args")
_ARGUMENT_VARIABLES = (
    *(f"{prefix}_MCA_{name}" for prefix in ("OMPI", "PRTE") for name in _ARGUMENTS),
    "HYDRA_LAUNCHER_EXTRA_ARGS",
)
_OTHER_WORDS = ("plm", "plm_rsh_agent", "plm_ssh_agent", "-launcher", "-bootstrap")


def hosts_to_check(job: Job, environ: Mapping[str, str], *, in_allocation: bool) -> list[Host]:
    """Returns the hosts that mpirun will reach by ssh, or by the program that replaces ssh.

    The list is empty if mpirun starts its daemons in another way.
    """
    other = any(name in environ for name in _OTHERS) or any(
        word in _OTHER_WORDS or word.startswith("-launcher") for word in job.mpi_args
    )
    if not job.ssh_check or (job.remote_shell is None and (in_allocation or other)):
        return []
    return [host for host in job.hosts if not is_local(host.name)]


def arguments(job: Job, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the arguments for ssh, from our options or from mpirun's."""
    if job.ssh_args:
        return job.ssh_args
    said = [environ[name] for name in _ARGUMENT_VARIABLES if name in environ]
    said += [value for name, value in zip(job.mpi_args, job.mpi_args[1:]) if name in _ARGUMENTS]
    with contextlib.suppress(ValueError):
        return tuple(word for text in said for word in shlex.split(text))
    return ()


@dataclass(frozen=True)
class Answer:
    """The answer of a host.

    Attributes:
        host: the host.
        code: the exit code of ssh, or of the command there; None if it has not ended in time.
        out: the command's stdout.
        said: the stderr of the command, or of ssh.
    """

    host: Host
    code: int | None
    out: str
    said: str


def command(
    host: Host, ssh_args: Sequence[str], shell: Path | None = None, asked: str = "true"
) -> list[str]:
    """Returns a command that asks one host, and never waits for a user's input.

    ``shell`` replaces ssh. ``asked`` is the command on the host, as a shell reads it.
    """
    if shell is not None:
        return [str(shell), host.target, asked]
    user = ["-l", host.user] if host.user else []
    limits = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT}"]
    return ["ssh", *limits, *ssh_args, *user, host.name, asked]


def failures(
    hosts: Iterable[Host],
    ssh_args: Sequence[str],
    environ: Mapping[str, str],
    shell: Path | None = None,
) -> list[str]:
    """Asks all hosts at once; returns a line for each host that cannot be reached."""
    return [
        explain(answer.host, ssh_args, answer.said, answer.code, shell)
        for answer in ask(hosts, ssh_args, environ, shell)
        if answer.code != 0
    ]


def ask(
    hosts: Iterable[Host],
    ssh_args: Sequence[str],
    environ: Mapping[str, str],
    shell: Path | None = None,
    asked: str = "true",
) -> list[Answer]:
    """Runs a command on all hosts at once, for at most LIMIT seconds.

    Args:
        hosts: the hosts.
        ssh_args: the result of `arguments`.
        environ: the environment of ssh.
        shell: a program to use instead of ssh.
        asked: the command, as a shell reads it.
    """
    with contextlib.ExitStack() as stack:
        started = []
        for host in hosts:
            out, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            process = subprocess.Popen(
                command(host, ssh_args, shell, asked),
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,  # without our terminal: ssh might ask a question there
            )
            stack.callback(_end, process)
            started.append((host, process, out, errors))
        until = time.monotonic() + LIMIT
        answers = []
        for host, process, *files in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            texts = []
            for file in files:
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
            answers.append(Answer(host, process.returncode, *texts))
        return answers


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends an ssh that still runs, with its children (such as a ProxyCommand)."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def explain(
    host: Host, ssh_args: Sequence[str], said: str, code: int | None, shell: Path | None = None
) -> str:
    """Returns a line with the error of a host and what to type; ``code`` None: ssh was too slow."""
    words = [line.strip() for line in said.splitlines() if line.strip()]
    name = shell.name if shell is not None else "ssh"
    last = words[-1].rstrip(".") if words else f"{name} ended with exit code {code}"
    if code is None:
        last = f"no answer within {LIMIT:g} s"
    if shell is not None:
        line = shlex.join(command(host, ssh_args, shell))
        return (
            f"host {host.name} cannot be reached by --remote-shell {shell}: {last}. Type: {line}, "
            "which must end without an error"
        )
    login = shlex.join([*ssh_args, host.target])
    return f"host {host.name} cannot be reached by ssh: {last}. {_advice(said, host.name, login)}"


def _advice(said: str, name: str, login: str) -> str:
    if "Permission denied" in said:
        return f"Type: ssh-copy-id {login}"
    if "Host key verification failed" in said:
        return f"Type: ssh {login}, and confirm that host's key"
    if "resolve" in said:
        return f"Correct its name in -H or the host file; getent hosts {name} prints a known one"
    if "refused" in said:
        return "If ssh listens on another port there: --ssh-port PORT"
    return f"Type: ssh {login} true, which must end without a question"
