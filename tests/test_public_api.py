"""The public API is what was agreed, and says what it does."""

from __future__ import annotations

import difflib
import enum
import inspect
import re

import public_api
import pytest

THINGS = dict(public_api.public())


def test_signatures_are_those_of_the_snapshot():
    """A change of the API is to be seen in a review, and to be meant."""
    before = public_api.SNAPSHOT.read_text(encoding="utf-8").splitlines()
    changes = "\n".join(difflib.unified_diff(before, public_api.lines(), lineterm="", n=0))
    assert not changes, (
        f"the public API has changed; if that is meant: {public_api.COMMAND}\n{changes}"
    )


@pytest.mark.parametrize("name", THINGS)
def test_every_public_name_says_what_it_does(name):
    """A summary, each argument, what comes back, what is raised, and an example."""
    thing = THINGS[name]
    text = inspect.getdoc(thing) or ""
    assert text, "no docstring"
    if inspect.isclass(thing) and issubclass(thing, (BaseException, enum.Enum)):
        return
    assert "Example:\n" in text, "no example"
    if inspect.isclass(thing):
        text += inspect.getdoc(thing.__init__) or ""
    signature = inspect.signature(thing)
    silent = [p for p in signature.parameters if not re.search(rf"^ +\**{p}: ", text, re.M)]
    assert not silent, "arguments that nothing is said about"
    if inspect.isclass(thing):
        return
    summary = text.partition("\n")[0]
    if signature.return_annotation not in ("None", None):
        assert "Returns:\n" in text or summary.startswith("Returns "), "not what comes back"
    if signature.parameters:
        assert "Raises:\n" in text, "not what is raised"
