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
    r"\bBurst\b|burst_": "batching window",
    r"\bMeans\b|\bCircle\b|\bFinder\b": "transport, group, transport selector",
    r"\bHello\b|\bIntroduce\b": "handshake",
    r"\b[Tt]ickets?\b|\b[Aa]stray\b": "pending collective, reshaped",
    r"\bLetters?\b|\bMeeting\b|\bMailRoom\b|\bRoom\b": "message, barrier, staging buffer",
    r"\bdoom(ed)?\b|\bdoom_|\bfence_": "fatal status, error epoch",
    r"\bSilent\b|\bheard_|\btold_": "missing, received, sent",
    r"\bkGo\b|\bkAsking\b|\bIsGo\b|\bAsks\(": "commit, abort requested",
    r"\b[Ss]tarters?\b": "launcher",
}


@pytest.mark.parametrize("word", OF_THE_CORE)
def test_a_word_of_the_core(word):
    found = []
    for path in sorted((ROOT / "cc").rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu"):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            for number, line in enumerate(lines, 1)
            if re.search(word, line)
        ]
    assert not found, f"say: {OF_THE_CORE[word]}\n" + "\n".join(found)
