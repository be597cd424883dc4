"""Gradients between hosts, beside what their links allow.

    python tests/perf/across_hosts.py [--hosts 3] [--ranks-per-host 1] [--megabits 500]
                                      [--milliseconds 1] [--tensors 1x64M 500x1K]
                                      [--model resnet50] [--sizes 16M --dtype float16]
                                      [--with-horovod PYTHON] [--seconds 0.5] [--json FILE]

The hosts are namespaces of this machine; each has a link of that speed, both ways, and of that
length, one way (tests/network.py: needs root and g++). All ranks share this machine's cores, which
limits fast links. "tfhvd, TCP" is without an MPI (tfhvdrun --transport tcp). "the link" is the time
that the best algorithm needs for all bytes: every host must send and receive 2(h-1)/h of them, in
packets of 9000 bytes that carry 8948, and then waits twice for the length of the way. --sizes
reduces one tensor of another type; those of 16 bits have a column more, for sums that cross as
float32. Each column is the median of one job's steps; the jobs follow each other.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import jobs  # noqa: E402
import network  # noqa: E402  (after its folder is on the path)

PAYLOAD = 8948 / 9000  # of a full packet, with the headers of IP and TCP with a time stamp


@dataclass(frozen=True)
class Contender:
    """A job to measure.

    Attributes:
        name: of its column.
        mpirun: the launcher; None: tfhvdrun, without an MPI.
        words: what each rank runs; the workloads follow.
        env: added to the environment.
    """

    name: str
    mpirun: Path | None
    words: tuple[str, ...]
    env: dict[str, str]


def seconds_of_link(total_bytes: int, hosts: int, link: network.Link) -> float:
    """How long the links take for an allreduce of so many bytes."""
    seconds = total_bytes * 2 * (hosts - 1) / hosts * 8 / (link.megabits * 1e6 * PAYLOAD)
    return seconds + 2 * link.milliseconds / 1e3


def contenders(horovod: Path | None, dtype: str) -> list[Contender]:
    """All that take part; plain MPI runs in tfhvd's job, in turn with it."""
    mpirun = Path(shutil.which("mpirun") or "mpirun")
    bench = (sys.executable, "-m", "tfhvd.bench", "--no-progress", "--rivals")
    found = [Contender("tfhvd", mpirun, (*bench, "mpi"), {})]
    found.append(Contender("tfhvd, TCP", None, (*bench, "none"), {}))
    if dtype in ("float16", "bfloat16"):
        wide = {"TFHVD_FLOAT32_ACROSS_HOSTS": "1"}
        found.append(Contender("tfhvd, float32 across", mpirun, (*bench, "none"), wide))
    if horovod is not None:
        words = (str(horovod), str(HERE / "horovod_job.py"))
        mpirun = horovod.parent / "mpirun"
        found.append(Contender("Horovod", mpirun, words, {}))
        hierarchical = {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}
        found.append(Contender("Horovod, hierarchical", mpirun, words, hierarchical))
    return found


def run(
    contender: Contender, net: network.Network, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Measures one job: the medians in seconds, by workload and column."""
    exported = [word for name in (*jobs.SETTINGS, *contender.env) for word in ("-x", name)]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # the hosts have other /dev/shm
        out = Path(folder) / "rows.json"
        words = [*net.run_on(0), *launcher(contender, net, options), *exported]
        words += [*contender.words, "--seconds", str(options.seconds), "--json", str(out)]
        words += ["--tensors", *options.tensors] if options.tensors else []
        words += ["--model", *options.model] if options.model else []
        one = ["--collectives", "allreduce", "--dtype", options.dtype, "--sizes", *options.sizes]
        words += one if options.sizes else []
        jobs.run(words, contender.env)
        rows = json.loads(out.read_text())["rows"]
    medians: dict[str, dict[str, float]] = {}
    for row in rows:
        own = row["subject"] == contender.name.partition(",")[0]
        beside = contender.name == "tfhvd" and row["subject"] in ("MPI", "tf.identity")
        if own or beside:
            workload = str(row["workload"])
            if workload == "allreduce":
                workload = f"{row['bytes'] / 2**20:g} MiB of {options.dtype}"
            columns = medians.setdefault(workload, {})
            columns["bytes"] = row["bytes"]
            columns[contender.name if own else row["subject"]] = row["p50_us"] / 1e6
    return medians


def launcher(contender: Contender, net: network.Network, options: argparse.Namespace) -> list[str]:
    """The words that start a rank of each slot of all hosts."""
    ranks = str(options.hosts * options.ranks_per_host)
    if contender.mpirun is not None:
        words = [str(contender.mpirun), *net.launcher(options.ranks_per_host)]
        return [*words, "--oversubscribe", "--bind-to", "none", "-np", ranks]
    words = [sys.executable, "-m", "tfhvd.launch", "--transport", "tcp"]
    return [*words, *net.tfhvdrun(options.ranks_per_host), "-np", ranks]


def table(figures: dict[str, dict[str, float]], names: list[str]) -> list[str]:
    """Lines of Markdown; of the link's time it says which part of ours it is."""
    lines = [f"| case | {' | '.join(names)} | link/tfhvd |", "|---" * (len(names) + 2) + "|"]
    for workload, columns in figures.items():
        times = [f"{1e3 * columns[name]:.4g} ms" if name in columns else "-" for name in names]
        share = f"{columns['the link'] / columns['tfhvd']:.0%}"
        lines.append(f"| {workload} | {' | '.join(times)} | {share} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--megabits", type=float, default=500.0, help="of each link, in a second")
    parser.add_argument("--milliseconds", type=float, default=0.1, help="of each way")
    parser.add_argument("--tensors", nargs="*", default=["1x64M", "500x1K"], metavar="COUNTxSIZE")
    parser.add_argument("--model", nargs="*", default=[])
    parser.add_argument("--sizes", nargs="*", default=[], metavar="SIZE", help="of one tensor")
    parser.add_argument("--dtype", default="float32", help="of that")
    parser.add_argument("--with-horovod", type=Path, metavar="PYTHON")
    parser.add_argument("--seconds", type=float, default=0.5, help="about, for each figure")
    parser.add_argument("--json", type=Path, help="write all medians to this file as well")
    options = parser.parse_args()
    if not network.available():
        parser.error("this needs root's right to make namespaces, and the tools ip and unshare")
    # Whoever ends this program ends what it has started, too.
    signal.signal(signal.SIGTERM, lambda number, stack: sys.exit(128 + number))
    figures: dict[str, dict[str, float]] = {}
    rivals = contenders(options.with_horovod, options.dtype)
    link = network.Link(options.megabits, options.milliseconds)
    with network.hosts(options.hosts, link) as net:
        for contender in rivals:
            print(f"{contender.name} ...", file=sys.stderr, flush=True)
            try:
                medians = run(contender, net, options)
            except jobs.JobError as error:
                sys.exit(str(error))
            for workload, columns in medians.items():
                figures.setdefault(workload, {}).update(columns)
    for columns in figures.values():
        columns["the link"] = seconds_of_link(int(columns["bytes"]), options.hosts, link)
    print(
        f"{options.hosts} hosts of {options.ranks_per_host}, {link.megabits:g} Mbit/s, "
        f"{link.milliseconds:g} ms\n"
    )
    names = ["tfhvd", "tf.identity", "MPI", *[rival.name for rival in rivals[1:]], "the link"]
    print(*table(figures, names), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
