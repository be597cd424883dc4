"""The public API is what was agreed, and says what it does."""

from __future__ import annotations

import difflib
import enum
import inspect

import public_api


def test_signatures_are_those_of_the_snapshot():
    """A change of the API is to be seen in a review, and to be meant."""
    before = public_api.SNAPSHOT.read_text(encoding="utf-8").splitlines()
    changes = "\n".join(difflib.unified_diff(before, public_api.lines(), lineterm="", n=0))
    assert not changes, (
        f"the public API has changed; if that is meant: {public_api.COMMAND}\n{changes}"
    )


def test_every_public_name_says_what_it_does():
    """A summary, the arguments, and an example."""
    silent = []
    for name, thing in public_api.public():
        text = inspect.getdoc(thing) or ""
        complete = bool(text)
        if not (inspect.isclass(thing) and issubclass(thing, (BaseException, enum.Enum))):
            complete = "Example" in text
        if inspect.isfunction(thing) and len(inspect.signature(thing).parameters) > 1:
            complete = complete and "Args:" in text
        if not complete:
            silent.append(name)
    assert not silent, f"without a docstring that has arguments and an example: {silent}"
