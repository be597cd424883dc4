"""The pages for developers name functions and files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs" / "developers").glob("w*-*.md"))
_FILE = re.compile(r"`((?:tfhvd|cc|launch)/[\w/]+(?:\.\w+)?)`")
# "`Class.name`, `other` in `file`"
_NAMED = re.compile(r"((?:`[\w.:]+`(?:, |, then | and )?)+) in `([\w/]+\.\w+)`")


def _path(named: str) -> Path:
    return ROOT / ("tfhvd" if named.startswith("launch/") else "") / named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_is_there(page):
    text = page.read_text(encoding="utf-8")
    named = _FILE.findall(text)
    missing = [name for name in named if not _path(name).exists()]
    for functions, file in _NAMED.findall(text):
        source = _path(file).read_text(encoding="utf-8") if _path(file).is_file() else ""
        for function in re.findall(r"[\w:.]+", functions.replace(", then", ",")):
            own = re.split(r"\.|::", function)[-1]
            if not re.search(rf"\b{own}\b", source):
                missing.append(f"{function} in {file}")
    assert not missing and named
