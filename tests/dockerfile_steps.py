"""Reads a Dockerfile and a .dockerignore, as far as the example uses what they can say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

INSTRUCTIONS = {"FROM", "ARG", "RUN", "COPY", "ENV", "WORKDIR", "USER", "CMD"}


@dataclass(frozen=True)
class Step:
    """An instruction: its name, what follows it in one line, and where it begins."""

    name: str
    text: str
    line: int

    def words(self) -> list[str]:
        """Of the JSON form (``CMD ["a", "b"]``); of the other form, what spaces separate."""
        return list(json.loads(self.text)) if self.text.startswith("[") else self.text.split()


@dataclass(frozen=True)
class Copy:
    """A COPY: the earlier stage that it copies from (None: the context), what, and where to."""

    stage: str | None
    sources: tuple[str, ...]
    target: str


@dataclass(frozen=True)
class Stage:
    """What begins with FROM: the image that it starts with, its name or "", and its steps."""

    image: str
    name: str
    steps: list[Step] = field(default_factory=list)

    def of(self, name: str) -> list[Step]:
        """The steps of one kind."""
        return [step for step in self.steps if step.name == name]


def read(path: Path) -> list[Stage]:
    """The stages of a Dockerfile; raises ValueError naming the line that is not understood."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for step in _steps(path.read_text(encoding="utf-8")):
        if step.name not in INSTRUCTIONS:
            raise ValueError(f"{path}, line {step.line}: {step.name} is not supported here")
        if step.name == "FROM":
            words = expand(step.text, arguments).split()
            if len(words) not in (1, 3) or (words[1:2] not in ([], ["AS"], ["as"])):
                raise ValueError(f"{path}, line {step.line}: {step.text}")
            stages.append(Stage(words[0], words[2] if len(words) == 3 else ""))
        elif stages:
            stages[-1].steps.append(step)
        elif step.name == "ARG":  # which holds for the FROM lines alone
            name, _, value = step.text.partition("=")
            arguments[name] = value
        else:
            raise ValueError(f"{path}, line {step.line}: {step.name} comes before FROM")
    return stages


def _steps(text: str) -> list[Step]:
    steps: list[Step] = []
    gathered, begin = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        # A comment may stand between the lines of an instruction.
        if line.lstrip().startswith("#") or not (line.strip() or gathered):
            continue
        begin = begin if gathered else number
        gathered += line.strip()
        if gathered.endswith("\\"):
            gathered = gathered[:-1]
            continue
        name, _, rest = gathered.partition(" ")
        steps.append(Step(name, rest.strip(), begin))
        gathered = ""
    if gathered:
        raise ValueError(f"line {begin}: the instruction has no end")
    return steps


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Puts in variables: ``expand("a:${B}", {"B": "c"}) == "a:c"``; unknown ones are empty."""
    return re.sub(
        r"\$(?:\{(\w+)\}|(\w+))", lambda match: variables.get(match[1] or match[2], ""), text
    )


def copy_of(step: Step) -> Copy:
    """What a COPY says; raises ValueError for options other than --from."""
    words = step.words()
    options = [word for word in words if word.startswith("--")]
    stage = None
    for option in options:
        name, _, value = option.partition("=")
        if name != "--from":
            raise ValueError(f"line {step.line}: {option} is not supported here")
        stage = value
    *sources, target = (word for word in words if word not in options)
    return Copy(stage, tuple(sources), target)


def read_ignored(path: Path) -> list[str]:
    """The patterns of a .dockerignore, in their order."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def is_ignored(name: str, patterns: Sequence[str]) -> bool:
    """Whether a path of the context is left out: the last pattern that fits decides.

    A pattern fits a path and all that lies below it. ``!`` takes paths in again.
    """
    ignored = False
    for pattern in patterns:
        if _pattern(pattern.removeprefix("!").strip("/")).fullmatch(name):
            ignored = not pattern.startswith("!")
    return ignored


def _pattern(text: str) -> re.Pattern[str]:
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", text)
    return re.compile("".join(special.get(part, re.escape(part)) for part in parts) + "(?:/.*)?")
