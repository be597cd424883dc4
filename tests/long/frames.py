"""Sends hostile frames to each listener of running jobs: nothing ends, grows, or lets anybody in.

    python tests/long/frames.py [--count N] [--seed S] [--only TEXT] [--at-once K] [--encrypt]

Two jobs of two ranks train, a fixed and an elastic one, as on two hosts; and a process has what
listens in other jobs: for results of `tfhvd.run`, for commands on machines of a cluster, for
questions about a host, for measurements of the doctor. Each rank serves its metrics. Each listener
gets N frames (10^5 unless said otherwise) of strangers, drawn as tests/launch/hostile.py says, and
a tenth as many from who has proved to be of the job, and talks nonsense. No stranger may be
answered beyond the handshake, or by what is not HTTP; what listens must not take more descriptors
or memory; at the end both jobs must have the right sums, and end with 0. With --encrypt, strangers
encrypt every other frame. Prints the rate for each listener; ends with 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "launch")]

import children  # noqa: E402  (after its folder is on the path)
import hostile  # noqa: E402

from tfhvd.network import connector, handshake, tokens  # noqa: E402
from tfhvd.protocol import messages  # noqa: E402

METRICS = "metrics"  # what nobody has to prove anything to
IDLE = 40  # connections that say nothing while the others come
WARM = 500  # frames before what a process has is looked at
MOST_BYTES = 8 << 20  # more of memory, and
MOST_DESCRIPTORS = 8  # of descriptors, that a process may have at the end
TO_START = 120.0  # seconds

# Each rank says where it and its launcher listen.
TRAINS = """
import json, os, sys, time
from pathlib import Path

folder = Path(sys.argv[1])
table = int(os.environ["_TFHVDRUN_ENDPOINTS"].split(",")[1])
fields = json.loads(os.pread(table, os.fstat(table).st_size, 0))
rank = fields["rank"]
os.environ["TFHVD_TEST_HOST"] = f"host{rank}"  # else they meet in shared memory alone
os.environ["TFHVD_METRICS_PORT"] = str(int(os.environ["TFHVD_METRICS_PORT"]) + rank)
import numpy as np
import tfhvd as hvd

hvd.init()
about = {"at": fields["addresses"][rank], "token": fields["token"], "pid": os.getpid()}
about["metrics"] = int(os.environ["TFHVD_METRICS_PORT"])
steps = 0
while True:
    over = float((folder / "over").exists())
    total = hvd.allreduce(np.array([1.0, over]), op=hvd.Sum, name="step")
    assert total[0] == 2.0
    steps += 1
    if steps == 20:
        (folder / f"{rank}.new").write_text(json.dumps(about))
        (folder / f"{rank}.new").rename(folder / f"{rank}.json")
    if total[1] == 2.0:
        break
    time.sleep(0.001)
print("right sums to the end")
hvd.shutdown()
"""

OTHERS = """
import json, os, sys, threading
from tfhvd.tools.doctor.link import Server
from tfhvd.hang import status_server
from tfhvd.launch.run import node
from tfhvd.network import address, handshake, tokens
from tfhvd.protocol import transfer
from tfhvd.network.listener import Door

token = tokens.new(os.environ)
results = transfer.Exchange(b"payload", os.environ, remote=False)
door = Door(address.listen(remote=False), token, status_server.ABOUT)
answers = (door, dict, lambda limit: False)
threading.Thread(target=status_server.serve, args=answers, daemon=True).start()
found = {
    "results": [results.environment[transfer.ADDRESS], results.environment[transfer.TOKEN], "call"],
    "commands": [f"127.0.0.1:{node.NodeServer(token).port}", token, "node"],
    "questions": [f"127.0.0.1:{door.port}", token, status_server.ABOUT],
    "measurements": [f"127.0.0.1:{Server(token).port}", handshake.derived(token, "link"), "link"],
}
print(json.dumps(found), flush=True)
sys.stdin.read()
os._exit(0)
"""


@dataclass(frozen=True)
class Listener:
    """One that is to be attacked.

    Attributes:
        name: for messages.
        at: where.
        token: what its guests know.
        about: what it is, as handshake calls it; of a rank, a call from the other one.
        processes: those that may not grow.
    """

    name: str
    at: tuple[str, int]
    token: str
    about: str
    processes: Sequence[int]

    @property
    def is_public(self) -> bool:
        """Whether everybody is answered."""
        return self.about == METRICS

    @property
    def is_rank(self) -> bool:
        """Whether who knows the token is a rank, whose loss ends a job."""
        return "\0" in self.about


def place(text: str) -> tuple[str, int]:
    """``place("10.0.0.1:80,127.0.0.1:80") == ("127.0.0.1", 80)``."""
    host, _, port = text.split(",")[-1].rpartition(":")
    return host, int(port)


def family(process: int) -> list[int]:
    """A process and those that it has started."""
    return [process, *(each for child in children.of(process) for each in family(child))]


def variables(process: int) -> dict[str, str]:
    """The environment that a process began with."""
    lines = Path(f"/proc/{process}/environ").read_bytes().decode().split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def metrics_port() -> int:
    """A port that is free, and the next one, too."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
                return port


@contextlib.contextmanager
def job(words: Sequence[str], wrong: list[str]) -> Iterator[list[Listener]]:
    """A running job; yields its listeners, and notes what is wrong with its end."""
    name = "elastic" if "--elastic" in words else "fixed"
    with tempfile.TemporaryDirectory(prefix="tfhvd-frames-") as folder_name:
        folder = Path(folder_name)
        (folder / "trains.py").write_text(TRAINS)
        run = [sys.executable, "-m", "tfhvd.launch", "--transport", "tcp", "-np", "2", *words]
        # A file takes what a launcher says of each peer that talks nonsense; a pipe would be full.
        with (
            (folder / "said").open("w+", encoding="utf-8") as said,
            subprocess.Popen(
                [*run, sys.executable, str(folder / "trains.py"), folder_name],
                env=children.environment(TFHVD_METRICS_PORT=str(metrics_port())),
                stdout=said,
                stderr=said,
            ) as launched,
        ):
            try:
                yield _listeners(name, launched, folder)
                if launched.poll() is not None:
                    wrong.append(f"{name}: the job has ended")
                (folder / "over").touch()
                launched.wait(timeout=120)
            finally:
                launched.terminate()  # an elastic job outlives a launcher that is killed
        text = (folder / "said").read_text(encoding="utf-8", errors="replace")
        if launched.returncode != 0 or text.count("right sums to the end") != 2:
            wrong.append(f"{name}: ended with {launched.returncode}: {text[-2000:]}")
        if "Traceback" in text:
            wrong.append(f"{name}: {text[text.index('Traceback') :][:2000]}")


def _listeners(name: str, launched: subprocess.Popen[bytes], folder: Path) -> list[Listener]:
    until = time.monotonic() + TO_START
    files = [folder / "0.json", folder / "1.json"]
    while not all(file.exists() for file in files):
        assert launched.poll() is None and time.monotonic() < until, "the job has not started"
        time.sleep(0.1)
    ranks = [json.loads(file.read_text()) for file in files]
    everyone = family(launched.pid)
    worker = next(each for each in everyone if "TFHVDRUN_ADDRESS" in variables(each))
    told, of_ranks = variables(worker), [rank["pid"] for rank in ranks]
    own = [each for each in everyone if each not in of_ranks]
    found = [
        Listener(
            f"{name}: launcher",
            place(told["TFHVDRUN_ADDRESS"]),
            told["TFHVDRUN_TOKEN"],
            messages.ABOUT,
            own,
        )
    ]
    for number, rank in enumerate(ranks):
        call = struct.pack("<3I", 0, 1 - number, number).decode()
        at = place(rank["at"])
        found.append(Listener(f"{name}: rank {number}", at, rank["token"], call, [rank["pid"]]))
        at = ("127.0.0.1", rank["metrics"])
        found.append(Listener(f"{name}: metrics of rank {number}", at, "", METRICS, [rank["pid"]]))
    return found


@contextlib.contextmanager
def others(wrong: list[str]) -> Iterator[list[Listener]]:
    """What listens in other jobs."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHERS],
        env=children.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        yield [
            Listener(name, place(at), token, about, [process.pid])
            for name, (at, token, about) in found.items()
        ]
        if process.poll() is not None:
            wrong.append(f"others: ended with {process.poll()}")
        _, err = process.communicate(timeout=60)
        if err:
            wrong.append(f"others: {err[-2000:]}")


def attack(listener: Listener, count: int, seed: str, wrong: list[str]) -> None:
    """Sends strangers' frames, one after the other, from many addresses."""
    draw = random.Random(seed)
    seen = [hostile.REQUEST]
    if not listener.is_public:
        seen = [hostile.recorded(listener.at, listener.token, listener.about)]
    for number in range(count):
        data = hostile.frame(draw, seen)
        source = f"127.{draw.randrange(1, 255)}.{draw.randrange(256)}.{draw.randrange(1, 255)}"
        encrypts = tokens.encrypts(listener.token) and draw.random() < 0.5
        answer = hostile.say(listener.at, data, source, encrypts=encrypts)
        is_right = len(answer) <= handshake.ANSWER
        if listener.is_public:
            is_right = not answer or answer.startswith(b"HTTP/1.1 ")
        if not is_right:
            wrong.append(f"{listener.name}, seed {seed}, frame {number}: answered {answer!r}")
            return


def talk_nonsense(listener: Listener, count: int, seed: str) -> None:
    """The same from who knows the token."""
    draw = random.Random(seed)
    for _ in range(count):
        limits = {"to_connect": 60.0, "to_prove": 60.0}
        with (
            contextlib.suppress(OSError),
            connector.connect(listener.at, listener.token, listener.about, **limits).sock as sock,
        ):
            sock.settimeout(60.0)
            sock.sendall(hostile.nonsense(draw))
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass


def measure(listener: Listener) -> dict[int, tuple[int, int]]:
    """The bytes and descriptors of each process."""
    return {
        each: (hostile.resident(each), hostile.descriptors(each)) for each in listener.processes
    }


def growth(listener: Listener, before: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """By how many bytes and descriptors a process has grown, once nobody is under way."""
    until = time.monotonic() + 2 * handshake.LIMIT
    while True:
        now = measure(listener)
        memory = max(now[each][0] - before[each][0] for each in before)
        files = max(now[each][1] - before[each][1] for each in before)
        if files <= MOST_DESCRIPTORS or time.monotonic() > until:
            return memory, files
        time.sleep(0.1)


def attack_at_once(listener: Listener, count: int, seed: int, at_once: int) -> list[str]:
    """Attacks one from several threads; returns what is wrong."""
    wrong: list[str] = []

    def all_at_once(each: int, name: str) -> None:
        parts = [(each // at_once, f"{seed} {name} {number}") for number in range(at_once)]
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda part: attack(listener, *part, wrong), parts))

    all_at_once(WARM, "warm")
    if not (listener.is_rank or listener.is_public):
        talk_nonsense(listener, WARM // 10, f"{seed} warm")
    before, began = measure(listener), time.monotonic()
    with contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection(listener.at, 60))
        all_at_once(count, listener.name)
    if not (listener.is_rank or listener.is_public):
        talk_nonsense(listener, count // 10, f"{seed} {listener.name}")
    took = time.monotonic() - began
    if listener.is_public and b" 200 OK" not in hostile.say(listener.at, hostile.REQUEST):
        wrong.append(f"{listener.name}: does not answer any more")
    grown = growth(listener, before)
    if grown[0] > MOST_BYTES or grown[1] > MOST_DESCRIPTORS:
        wrong.append(f"{listener.name}: grown by {grown[0]} bytes, {grown[1]} descriptors")
    print(
        f"{listener.name}: {count} frames in {took:.0f} s; grown by {grown[0] / 2**20:.1f} MiB and "
        f"{grown[1]} descriptors: {'WRONG' if wrong else 'ok'}",
        flush=True,
    )
    return wrong


def main() -> int:
    """Attacks one listener after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, help="printed where not given")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text")
    parser.add_argument("--at-once", type=int, default=4, metavar="K", help="threads that attack")
    parser.add_argument("--encrypt", action="store_true", help="as tfhvdrun's")
    options = parser.parse_args()
    if options.encrypt:
        os.environ[tokens.SETTING] = "1"
    seed = options.seed if options.seed is not None else random.randrange(1 << 31)
    print(f"seed {seed}", flush=True)
    wrong: list[str] = []
    with job([], wrong) as fixed, job(["--elastic"], wrong) as elastic, others(wrong) as more:
        for listener in [*fixed, *elastic, *more]:
            if options.only in listener.name:
                wrong += attack_at_once(listener, options.count, seed, options.at_once)
    for text in wrong:
        print(f"WRONG: {text}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
