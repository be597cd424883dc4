"""Loses hosts of elastic jobs at random times: do the others go on, alike, and after what pause?

    python tests/long/cuts.py [--losses N] [--seed S] [--way loop|compiled|fit] [--majority]

Each job trains on four hosts (network namespaces, which root may make), a rank each; tfhvdrun runs
on the first one. Up to three of the others are lost, some at the same time: cut off from the
network without a word, or their rank is killed (SIGKILL). Every survivor must make all steps, with
the same weights as the others, and the job must end with 0. With --majority there are five hosts,
and the first one is lost, too, alone or before or after another one. Prints a line for each job,
and at the end how long the survivors paused; ends with 1 where anything was wrong. A job takes
about 30 s on two quiet cores.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import children  # noqa: E402  (after its folder is on the path)
import elastic  # noqa: E402
import network  # noqa: E402

HOSTS, STEPS = 4, 3000
# With --majority; of so many two are fewer than half, whenever they are lost.
HOSTS_APART, STEPS_APART = 5, 6000
SECONDS = 240  # for a job to begin, and to end
DEEDS = ("cut off", "cut off", "killed")


@dataclass(frozen=True)
class Loss:
    """Hosts that are lost at one time.

    Attributes:
        before: seconds until then.
        deed: how.
        hosts: which.
        after: seconds until the next one may be.
    """

    before: float
    deed: str
    hosts: list[int]
    after: float


def run(way: str, draw: random.Random, *, majority: bool) -> tuple[str, dict[str, list[float]]]:
    """Runs a job; returns "ok" or what is wrong, and by deed how long the survivors paused."""
    hosts, steps = (HOSTS_APART, STEPS_APART) if majority else (HOSTS, STEPS)
    plan = _plan(draw, majority=majority)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfhvd-cuts-")))
        net = stack.enter_context(network.hosts(hosts))
        others = stack.enter_context(net.daemon()) if majority else net
        (folder / "train.py").write_text(elastic.PROGRAM, encoding="utf-8")
        output = stack.enter_context((folder / "output").open("w+"))
        kind = "--majority" if majority else "--elastic"
        launch = [sys.executable, "-m", "tfhvd.launch", kind, *others.tfhvdrun(1)]
        job = stack.enter_context(
            subprocess.Popen(
                [*net.run_on(0), *launch, sys.executable, "train.py", way, str(steps)],
                cwd=folder,
                env=children.environment(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="2"),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        )
        done: list[tuple[str, float]] = []
        lost: set[int] = set()
        try:
            _lose(net, folder, job, plan, done, lost)
            job.wait(SECONDS)
            were = plan[: len(done)]
            is_lost = any(loss.deed == "cut off" and 0 in loss.hosts for loss in were)
            code = _code_of_next(folder) if is_lost else job.returncode
        except subprocess.TimeoutExpired:
            job.terminate()
            code = job.wait(60) or 1
        said = (folder / "output").read_text(errors="replace")[-3000:]
        said += "".join(path.read_text()[-3000:] for path in folder.glob("tfhvdrun-*.log"))
        left = set(range(hosts)) - lost
        wrong, ends = elastic.outcome(folder, code, left, steps, said)
        if wrong:
            return wrong, {}
        pauses: dict[str, list[float]] = {}
        found = elastic.pauses_after([at for _, at in done], ends)
        for (deed, _), pause in zip(done, found):
            pauses.setdefault(deed, []).append(pause)
        return "ok", pauses


def _plan(draw: random.Random, *, majority: bool) -> list[Loss]:
    plan = []
    victims = draw.sample(range(1, HOSTS), draw.randint(1, HOSTS - 1))
    if majority:
        victims = draw.choice(([0], [0, victims[0]], [victims[0], 0]))
    while victims:
        count = 1 if majority else draw.choice((1, 1, 1, 2))
        hosts, victims = victims[:count], victims[count:]
        # Some are lost while the others recover, and some after.
        after = (8 if majority else 4) * draw.random()
        plan.append(Loss(draw.random(), draw.choice(DEEDS), hosts, after))
    return plan


def _lose(
    net: network.Network,
    folder: Path,
    job: subprocess.Popen[bytes],
    plan: Sequence[Loss],
    done: list[tuple[str, float]],
    lost: set[int],
) -> None:
    """Loses hosts; notes what was done and when, and which ranks are lost."""
    deadline = time.monotonic() + SECONDS
    while not all((folder / f"{rank}.pid").exists() for rank in range(len(net.names))):
        if job.poll() is not None or time.monotonic() > deadline:
            return
        time.sleep(0.02)
    for loss in plan:
        time.sleep(loss.before)
        if list(folder.glob("*.json")):
            return
        done.append((loss.deed, time.monotonic()))
        for victim in loss.hosts:
            lost.add(victim)
            if loss.deed == "killed":
                os.kill(_rank_on(net, victim), signal.SIGKILL)
            else:
                net.cut_off(victim)
        time.sleep(loss.after)


def _code_of_next(folder: Path) -> int:
    """The exit code of the job, by who supervises it where tfhvdrun is lost."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if any("exit code 0\n" in path.read_text() for path in folder.glob("tfhvdrun-*.log")):
            return 0
        time.sleep(0.1)
    return 1


def _rank_on(net: network.Network, host: int) -> int:
    """The process id of the rank on a host, as this process sees it."""
    for pid in net.pids(host):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[1:2] == [b"train.py"]:
            return pid
    raise RuntimeError(f"no rank runs on {net.names[host]}")


def main() -> int:
    """Runs jobs until so many hosts are lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--losses", type=int, default=50, metavar="N", help="times (50)")
    parser.add_argument("--seed", type=int, help="printed where not given")
    parser.add_argument("--way", choices=elastic.WAYS)
    parser.add_argument("--majority", action="store_true", help="lose the host of tfhvdrun, too")
    options = parser.parse_args()
    if not network.available():
        parser.error("only root can make hosts with networks of their own")
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    draw = random.Random(seed)
    pauses: dict[str, list[float]] = {}
    jobs = wrong = 0
    while sum(map(len, pauses.values())) < options.losses and wrong < 10:
        jobs += 1
        way = options.way or draw.choice(elastic.WAYS)
        said, found = run(way, draw, majority=options.majority)
        wrong += said != "ok"
        for deed, some in found.items():
            pauses.setdefault(deed, []).extend(some)
        figures = "; ".join(
            f"{deed}: {', '.join(f'{1e3 * pause:.0f}' for pause in some)} ms"
            for deed, some in sorted(found.items())
        )
        print(f"{jobs}. {way}: {said} ({figures})", flush=True)
    for deed, some in sorted(pauses.items()):
        elastic.print_pauses(f"hosts {deed}" if deed == "cut off" else "ranks killed", some)
    print(f"{jobs - wrong} of {jobs} jobs ok")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
