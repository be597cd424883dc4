"""Carries out examples/Dockerfile without Docker, in folders that become root directories (chroot).

    sudo python tests/long/dockerfile.py [--dry-run] [--mirror URL] [--carry PATH]... [--keep]

Needs root, debootstrap, git, and access to the packages of Debian and of Python. Debian of the
release that the image's tag names, with its own Python, takes the place of Python's image. At the
end two ranks train in the image as its user, sshd runs there, and tfhvdrun starts two ranks by ssh.
Takes about 10 minutes, and 6 GiB of disk. `--dry-run` prints the steps.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import dockerfile_steps as steps

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples" / "Dockerfile"

MARK = "TFHVD_DOCKERFILE_NAMESPACE"  # set once we have namespaces of our own
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# How package managers reach their servers from here. A build in Docker is told by --build-arg.
PASSED = re.compile(r"(?i:(https?|ftp|all|no)_proxy)|PIP_\w+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE")

# What Python's image has: Python with venv, its headers, and the certificates that pip reads.
PACKAGES = ("ca-certificates", "python3", "python3-dev", "python3-venv")

COMPILERS = ("cc", "c++", "gcc", "g++", "clang")


@dataclass
class Image:
    """A root directory and what its steps have set."""

    root: Path
    variables: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    folder: str = "/"
    user: str = "0:0"

    def inside(self, path: str) -> Path:
        """A path of the image as one of ours."""
        return self.root / os.path.normpath(Path("/", self.folder, path)).lstrip("/")

    def command(self, words: Sequence[str]) -> list[str]:
        """What runs a program in the image, as Docker would."""
        number = self.user.partition(":")[0]
        variables = {**self.variables, "HOME": home_of(self.root, number)}
        settings = [f"{name}={value}" for name, value in variables.items()]
        enter = ["chroot", f"--userspec={self.user}", "--groups=", str(self.root)]
        # The folder is made the current one within.
        change = ["sh", "-c", 'cd "$0" && exec "$@"', self.folder]
        return [*enter, "/usr/bin/env", "-i", *settings, *change, *words]


def home_of(root: Path, number: str) -> str:
    """The home of a user of the image, by the user's number."""
    for line in (root / "etc/passwd").read_text(encoding="utf-8").splitlines():
        fields = line.split(":")
        if len(fields) > 5 and fields[2] == number:
            return fields[5]
    return "/"


def run(words: Sequence[str], *, timeout: float | None = None) -> None:
    """Runs a program; raises CalledProcessError if it fails."""
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, timeout=timeout)


def release_of(image: str) -> tuple[str, str]:
    """``release_of("python:3.11-slim-bookworm") == ("3.11", "bookworm")``."""
    match = re.fullmatch(r"python:(3\.\d+)-slim-(\w+)", image)
    if match is None:
        sys.exit(f"dockerfile: Received: FROM {image}. Expected: python:3.N-slim-RELEASE")
    return match[1], match[2]


def make_base(image: str, root: Path, mirror: str | None) -> None:
    """Makes what takes the place of Python's image; the mirror is debootstrap's if None."""
    version, release = release_of(image)
    packages = ",".join(PACKAGES)
    where = [release, str(root), *([mirror] if mirror else [])]
    run(["debootstrap", "--variant=minbase", f"--include={packages}", *where])
    for name in ("python", "pip"):
        target = Path(root, "usr/bin", f"{name}3")
        if target.exists():
            Path(root, "usr/local/bin", name).symlink_to(f"/usr/bin/{name}3")
    said = subprocess.run(
        ["chroot", str(root), "python", "--version"], capture_output=True, text=True, check=True
    ).stdout
    if not said.startswith(f"Python {version}."):
        sys.exit(f"dockerfile: {release} has {said.strip()}. Expected: the tag's, {version}")


def mount_system(root: Path, carried: Sequence[Path]) -> None:
    """Gives a root directory what a container has: devices, /proc, the network's names.

    We are in a mount namespace of our own: all of it ends with us.
    """
    run(["mount", "-t", "proc", "proc", str(root / "proc")])
    for name in ("null", "zero", "random", "urandom", "tty"):
        (root / "dev" / name).touch()
        run(["mount", "--bind", f"/dev/{name}", str(root / "dev" / name)])
    (root / "dev" / "shm").mkdir(exist_ok=True)
    run(["mount", "-t", "tmpfs", "-o", "size=1g,mode=1777", "tmpfs", str(root / "dev" / "shm")])
    for path in (Path("/etc/resolv.conf"), Path("/etc/hosts"), *carried):
        target = root / path.relative_to("/")
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        run(["mount", "--bind", str(path.resolve()), str(target)])


def context_files() -> list[str]:
    """What Docker would send to its builder: the files of this tree but those of .dockerignore."""
    patterns = steps.read_ignored(ROOT / ".dockerignore")
    said = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = sorted(name for name in said.split("\0") if name and (ROOT / name).is_file())
    return [name for name in names if not steps.is_ignored(name, patterns)]


def copy(image: Image, what: steps.Copy, earlier: Mapping[str, Image]) -> None:
    """Does a COPY. As in Docker, a folder's contents go into the target, not the folder itself."""
    target = image.inside(what.target)
    for source in what.sources:
        if what.stage is not None:
            run_copy(earlier[what.stage].inside(source), target)
            continue
        below = "" if source == "." else f"{source}/"
        files = [name for name in context_files() if name == source or name.startswith(below)]
        if not files:
            sys.exit(f"dockerfile: COPY {source}: the context has no such file")
        for name in files:
            place = target if name == source else target / name.removeprefix(below)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place)


def run_copy(source: Path, target: Path) -> None:
    """Copies a file, or the contents of a folder, with links and modes."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        run(["cp", "-a", f"{source}/.", str(target)])
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        run(["cp", "-a", str(source), str(target)])


def carry_out(image: Image, step: steps.Step, earlier: Mapping[str, Image]) -> None:
    """Does one step."""
    text = steps.expand(step.text, image.variables)
    if step.name == "RUN":
        passed = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
        passed["DEBIAN_FRONTEND"] = "noninteractive"  # there is no terminal, as in Docker
        builder = Image(image.root, {**passed, **image.variables}, image.folder, image.user)
        run(builder.command(["sh", "-c", step.text]))
    elif step.name == "COPY":
        copy(image, steps.copy_of(step), earlier)
    elif step.name == "ENV":
        name, _, value = text.partition("=")
        image.variables[name] = value
    elif step.name == "WORKDIR":
        image.inside(text).mkdir(parents=True, exist_ok=True)
        image.folder = os.path.normpath(Path(image.folder, text))
    elif step.name == "USER":
        image.user = text
    else:
        assert step.name == "CMD", step


def build(top: Path, options: argparse.Namespace) -> Image:
    """Carries out all stages; returns the image."""
    stages = steps.read(FILE)
    images: dict[str, Image] = {}
    image = Image(top)
    for number, stage in enumerate(stages):
        say(f"FROM {stage.image}")
        base = top / f"base-{stage.image.replace(':', '-')}"
        if not base.exists():
            make_base(stage.image, base, options.mirror)
        image = Image(top / f"stage-{number}")
        run(["cp", "-a", "--reflink=auto", str(base), str(image.root)])
        mount_system(image.root, options.carry)
        for step in stage.steps:
            say(f"{step.name} {step.text}")
            carry_out(image, step, images)
        images[stage.name or str(number)] = image
    return image


def check(image: Image) -> None:
    """What the image is for: it trains, and other containers can start ranks in it."""
    for compiler in COMPILERS:
        found = subprocess.run(
            image.command(["sh", "-c", f"command -v {compiler}"]), capture_output=True, check=False
        )
        assert found.returncode != 0, f"{compiler} is in the image"
    assert not list(image.inside("/etc/ssh").glob("ssh_host_*")), "keys are in the image"
    [command] = [step.words() for step in steps.read(FILE)[-1].of("CMD")]
    say(f"CMD {shlex.join(command)}")
    trained = output(image, command, timeout=600)
    accuracy = re.search(r"test accuracy of 2 rank\(s\): ([\d.]+)", trained)
    assert accuracy and float(accuracy[1]) >= 0.97, trained
    make_secret(image)
    with sshd(image) as server:
        said = output(image, ["ssh", "-n", "localhost", "id -u; command -v tfhvdrun"])
        number = image.user.partition(":")[0]
        assert said.split() == [number, "/opt/tfhvd/bin/tfhvdrun"], said
        # tfhvdrun takes another name than its own for another host, which it reaches by ssh.
        say("two ranks by ssh")
        program = "import tfhvd as hvd; hvd.init(); print('rank', hvd.rank(), 'of', hvd.size())"
        start = ["tfhvdrun", "-H", "127.0.0.2:2", "python", "-c", program]
        said = output(image, start, timeout=300)
        assert sorted(re.findall(r"rank \d of \d", said)) == ["rank 0 of 2", "rank 1 of 2"], said
        check_ending(image, server)


def check_ending(image: Image, server: subprocess.Popen[bytes]) -> None:
    """Where all containers are ended at once, ranks have time to save, and sshd waits for them."""
    say("SIGTERM")
    rank = "trap 'sleep 2; echo saved; exit' TERM; echo ready; while :; do sleep 0.1; done"
    job = subprocess.Popen(
        image.command(["tfhvdrun", "-H", "127.0.0.2:2", "sh", "-c", rank]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert job.stdout is not None
        assert [job.stdout.readline().split()[-1] for _ in range(2)] == ["ready", "ready"]
        server.terminate()
        job.terminate()
        time.sleep(1)  # half of what the ranks take
        assert server.poll() is None, "sshd has not waited"
        said, _ = job.communicate(timeout=60)
        assert said.count("saved") == 2, said
        assert server.wait(timeout=30) == 128 + 15
    finally:
        job.kill()
        job.wait()


def output(image: Image, words: Sequence[str], timeout: float = 60) -> str:
    """What a program of the image prints; raises CalledProcessError if it fails."""
    return subprocess.run(
        image.command(words),
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout,
    ).stdout


def make_secret(image: Image) -> None:
    """Makes ~/.ssh as Kubernetes mounts a Secret: it belongs to root, and everyone may read it."""
    folder = image.inside(f"{home_of(image.root, image.user.partition(':')[0])}/.ssh")
    folder.mkdir()
    key = folder / "id_ed25519"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)])
    key.with_suffix(".pub").rename(folder / "authorized_keys")
    for path in folder.iterdir():
        path.chmod(0o644)
    folder.chmod(0o1777)


@contextmanager
def sshd(image: Image) -> Iterator[subprocess.Popen[bytes]]:
    """The image's sshd, as the image's user."""
    server = subprocess.Popen(image.command(["tfhvd-sshd"]), stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        ask = image.command(["ssh", "-n", "localhost", "true"])
        while subprocess.run(ask, capture_output=True, check=False).returncode != 0:
            assert server.poll() is None, "sshd has ended"
            assert time.monotonic() < until, "sshd does not answer"
            time.sleep(0.2)
        yield server
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def say(line: str) -> None:
    print(f"dockerfile: {line}", flush=True)


def dry_run() -> None:
    """Prints what would be done."""
    for stage in steps.read(FILE):
        version, release = release_of(stage.image)
        say(f"FROM {stage.image}: debootstrap {release}, Python {version}")
        for step in stage.steps:
            say(f"  line {step.line}: {step.name} {step.text}")
    files = context_files()
    say(
        f"the context has {len(files)} files, {sum((ROOT / f).stat().st_size for f in files)} bytes"
    )


def absolute(text: str) -> Path:
    """A path of this machine that exists."""
    path = Path(text)
    if not path.is_absolute() or not path.exists():
        raise argparse.ArgumentTypeError(f"{text} is not an absolute path of a file or a folder")
    return path


def main() -> int:
    """Builds and checks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="print the steps only")
    parser.add_argument("--mirror", metavar="URL", help="Debian's packages, if not from Debian")
    parser.add_argument(
        "--carry",
        action="append",
        default=[],
        type=absolute,
        metavar="PATH",
        help="a file or folder of this machine that steps need, as /etc/pip.conf (repeatable)",
    )
    parser.add_argument("--keep", action="store_true", help="do not remove the folders at the end")
    options = parser.parse_args()
    if options.dry_run:
        dry_run()
        return 0
    if os.geteuid() != 0:
        parser.error("chroot needs root")
    if shutil.which("debootstrap") is None:
        parser.error("debootstrap is missing: apt install debootstrap")
    if MARK not in os.environ:
        # What we mount and start ends with us, whatever happens.
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        words = [*own, sys.executable, *sys.argv]
        return subprocess.run(words, env={**os.environ, MARK: "1"}, check=False).returncode
    os.umask(0o022)
    top = Path(tempfile.mkdtemp(prefix="tfhvd-dockerfile-"))
    top.chmod(0o755)  # the image's user passes through it
    try:
        image = build(top, options)
        size = subprocess.run(
            ["du", "-sxm", str(image.root)], capture_output=True, text=True, check=True
        ).stdout.split()[0]
        say(f"the image has {size} MB")
        check(image)
    finally:
        if options.keep:
            say(f"kept in {top}")
        else:
            for mounted in mounts_below(top):
                run(["umount", "--lazy", mounted])
            shutil.rmtree(top)
    say("done")
    return 0


def mounts_below(top: Path) -> list[str]:
    """Mount points in a folder, the innermost first: what they show must not be removed."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    points = [line.split()[1] for line in lines]
    return sorted((point for point in points if point.startswith(f"{top}/")), reverse=True)


if __name__ == "__main__":
    sys.exit(main())
