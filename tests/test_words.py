"""One word, one meaning: words of our own that the field has other words for stay out.

`cc/README.md`, `cc/docs/` and `docs/` explain the words that are left.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# By word, a regular expression: what to say instead. In C++ sources, comments included.
OF_THE_CORE = {
    r"stand_in|StandIn|StandDown|stands? in for": "inline execution; placeholder",
    r"StepWatch|WatchVotes|WatchCoordinator": "detector, check",
    r"PlaceOf|FindPlace": "index",
    r"[Bb]ursts?\b|burst_|[Cc]ompany": "batching window",
    r"Means\b|\bmeans_|\bCircle\b|\bFinder\b": "transport, group, transport selector",
    r"\b[Hh]ello\b|[Ii]ntroduc(e|tion)": "handshake",
    r"\b[Tt]ickets?\b|\b[Aa]stray\b": "pending collective, reshaped",
    r"\b[Ll]etters?\b|\b[Mm]eetings?\b": "message, barrier",
    r"MailRoom|\b[Rr]ooms\b|rooms_": "staging buffer, mailboxes",
    r"[Dd]oom|\bfence_": "fatal status, error epoch",
    r"\b[Ss]ilent|[Ss]ilence|\b[Hh]eard|\bhears\b|\btold_": "missing, received, sent",
    r"[Pp]atien(ce|t)": "wait monitor, limit",
    r"\bkGo\b|\bkAsking\b|\bIsGo\b|\bAsks\(": "commit, abort requested",
    r"\b[Ss]tarters?\b": "launcher",
}


# In everything that is written for people: sources, tests, docs.
OF_ALL = {
    r"(?<![a-z])[Ss]tarters?(?![a-z])": "launcher",
    r"\blast[ _]words\b": "last lines",
    r"\b[Ss]tand-?ins?\b|Stands?In": "fake; shim; placeholder",
}


def files(folders: tuple[str, ...], suffixes: tuple[str, ...]) -> list[Path]:
    found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return sorted(path for path in found if path.suffix in suffixes and path != Path(__file__))


def lines_with(word: str, paths: list[Path]) -> list[str]:
    found = []
    for path in paths:
        lines = path.read_text(encoding="utf-8").splitlines()
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            for number, line in enumerate(lines, 1)
            if re.search(word, line)
        ]
    return found


@pytest.mark.parametrize("word", OF_THE_CORE)
def test_a_word_of_the_core(word):
    found = lines_with(word, files(("cc",), (".h", ".cc", ".cu")))
    assert not found, f"say: {OF_THE_CORE[word]}\n" + "\n".join(found)


@pytest.mark.parametrize("word", OF_ALL)
def test_a_word_of_all(word):
    suffixes = (".h", ".cc", ".cu", ".py", ".md", ".sh")
    folders = ("cc", "tfhvd", "tests", "docs", "examples")
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    found = lines_with(word, [*files(folders, suffixes), *pages])
    assert not found, f"say: {OF_ALL[word]}\n" + "\n".join(found)
