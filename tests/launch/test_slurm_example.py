"""The batch script of the examples, with fakes for what Slurm gives it: variables, and srun."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import mpi
import pytest
from launching import TFHVDRUN, environment
from variants import also

SCRIPT = mpi.ROOT / "examples" / "slurm.sh"
PROGRAM = "import tfhvd as hvd; hvd.init(); print(f'rank {hvd.rank()} of {hvd.size()}\\n', end='')"


def test_it_is_a_batch_script():
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    lines = SCRIPT.read_text().splitlines()
    first_command = next(at for at, line in enumerate(lines) if line and line[0] != "#")
    directives = [at for at, line in enumerate(lines) if line.startswith("#SBATCH")]
    assert directives and max(directives) < first_command, "sbatch reads none after a command"
    [default] = re.findall(r"set -- python (\S+)", SCRIPT.read_text())
    assert (mpi.ROOT / default).is_file()


def command(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def run(folder: Path, launcher: str, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    command(folder / "scontrol", f'echo "$@" >>{shlex.quote(str(folder / "scontrol.arguments"))}')
    command(folder / "tfhvdrun", f'exec {shlex.join(TFHVDRUN)} "$@"')
    # srun takes options of its own first. The allocation is not for mpirun, which would ask Slurm.
    command(
        folder / "srun",
        f'echo "$@" >{shlex.quote(str(folder / "srun.arguments"))}\n'
        "while [[ $1 == --* ]]; do shift; done\n"
        f'exec env -u SLURM_JOB_ID {shlex.join(TFHVDRUN)} --no-prefix -np 2 "$@"',
    )
    env = environment(
        PATH=f"{folder}{os.pathsep}{os.environ['PATH']}",
        LAUNCHER=launcher,
        SLURM_JOB_ID="7",
        SLURM_JOB_NODELIST=socket.gethostname(),
        SLURM_NTASKS="2",
        SLURM_CPUS_PER_TASK="3",
    )
    words = ["bash", str(SCRIPT), sys.executable, "-c", program]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("launcher", ["tfhvdrun", "srun"])
def test_ranks_start(tmp_path, launcher):
    result = run(tmp_path, launcher)
    assert result.returncode == 0, result.stderr
    found = sorted(re.findall(r"rank \d of \d", result.stdout))
    assert found == ["rank 0 of 2", "rank 1 of 2"], result.stdout
    arguments = tmp_path / "srun.arguments"
    assert arguments.exists() == (launcher == "srun")
    if launcher == "srun":
        assert arguments.read_text().startswith(
            "--mpi=pmix --kill-on-bad-exit=1 --cpus-per-task=3 "
        )


STOPS = """
import tfhvd as hvd
hvd.init()
if hvd.rank() == 1:
    hvd.request_stop()
hvd.barrier()
if hvd.should_stop():
    raise hvd.StopRequested
"""


@pytest.mark.parametrize("launcher", ["tfhvdrun", also("srun")])
def test_ranks_that_stop_are_started_again(tmp_path, launcher):
    result = run(tmp_path, launcher, STOPS)
    assert result.returncode == 75, result.stderr
    assert (tmp_path / "scontrol.arguments").read_text() == "requeue 7\n"


FAKE = """
trap 'echo TERM >>"$0.said"; sleep 0.5; exit 75' TERM
echo up >>"$0.said"
while sleep 0.05; do :; done
"""


def test_sigterm_reaches_the_launcher(tmp_path):
    command(tmp_path / "tfhvdrun", FAKE)
    command(tmp_path / "scontrol", f'echo "$@" >{shlex.quote(str(tmp_path / "scontrol.said"))}')
    env = environment(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}", SLURM_JOB_ID="7")
    with subprocess.Popen(["bash", str(SCRIPT), "true"], env=env) as process:
        said = tmp_path / "tfhvdrun.said"
        mpi.wait_for(lambda: said.exists() and said.read_text() == "up\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 75
    assert said.read_text() == "up\nTERM\n"
    assert (tmp_path / "scontrol.said").read_text() == "requeue 7\n"


def test_another_launcher(tmp_path):
    result = run(tmp_path, "mpirum")
    assert result.returncode == 2
    assert "LAUNCHER is 'mpirum'" in result.stderr
