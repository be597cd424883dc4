"""What docs/troubleshooting.md quotes, for the tests that make its symptoms.

    troubleshooting.check("`has died`, or `killed by SIGKILL`", outcome.err)

fails where the page says something else than was printed.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")

_VARYING = {
    "time": (r"20\d\d-\S+Z", r"\S+"),
    "host": (r"(?<=host )[ab]\b|(?<=on )[ab]\b", r"[^\s,):]+"),
    "any": (r"\.\.\.", ".*"),
    "number": (r"\d+(?:\.\d+)*", r"[\d.]+"),
}


def headings() -> list[str]:
    """The symptoms."""
    return re.findall(r"^### (.*)$", PAGE, re.M)


def quoted(heading: str) -> list[str]:
    """The texts that the page quotes under a heading."""
    section = PAGE.split(f"### {heading}\n", 1)[1]
    section = re.split(r"^##", section, maxsplit=1, flags=re.M)[0]
    return re.findall(r"^```text\n(.*?)^```", section, re.M | re.S)


def pattern(line: str) -> str:
    """A regular expression for a line of the page: hosts, times and numbers may be others."""
    both = "|".join(f"(?P<{name}>{text})" for name, (text, _) in _VARYING.items())
    found, end = "", 0
    for part in re.finditer(both, line):
        found += re.escape(line[end : part.start()])
        found += _VARYING[str(part.lastgroup)][1]
        end = part.end()
    return found + re.escape(line[end:])


def messages(heading: str) -> list[str]:
    """Patterns of the messages that a heading consists of; none where it says it in other words."""
    return [pattern(text) for text in re.findall(r"`([^`]+)`", heading)]


def check(heading: str, printed: str, block: int | None = None) -> None:
    """Fails unless what the page says of a symptom was printed.

    Args:
        heading: of the page, without the number signs.
        printed: by what has the fault.
        block: which of the texts that are quoted; None for all.
    """
    says = messages(heading)
    assert not says or any(re.search(text, printed) for text in says), printed
    texts = quoted(heading)
    assert says or texts, f"the page quotes nothing under {heading}"
    for text in texts if block is None else [texts[block]]:
        for line in text.splitlines():
            assert re.search(pattern(line.strip()), printed), f"not printed: {line}\n{printed}"


def literals(source: Path) -> str:
    """The string literals of a source file, in which adjacent ones are one."""
    text = re.sub(r'"\s*\n\s*f?"', "", source.read_text(encoding="utf-8"))
    return "\n".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', text))
