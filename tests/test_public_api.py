"""The public API is what was agreed, and says what it does."""

from __future__ import annotations

import difflib
import enum
import inspect
import re

import public_api
import pytest

import tfhvd
import tfhvd.keras
from tfhvd import errors
from tfhvd.gradients.options import ReductionOptions

THINGS = dict(public_api.public())
DISTRIBUTED = [name for name in THINGS if re.search(r"\.(Partial)?Distributed\w+$", name)]


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
        assert "Raises:\n" in text or "raises nothing" in text, "not what is raised"


def described(text: str) -> dict[str, str]:
    """The arguments, or attributes, that a docstring lists, with what it says of them."""
    [listed] = re.findall(r"(?ms)^(?:Args|Attributes):\n(.*?)(?:^\S|\Z)", text)
    found = re.findall(r"(?ms)^    (\w+): (.*?)(?=^    \S|\Z)", listed)
    return {name: " ".join(said.split()) for name, said in found}


@pytest.mark.parametrize("name", [*DISTRIBUTED, "tfhvd.keras.load_model"])
def test_arguments_of_optimizers_and_tapes_are_described_by_one_table(name):
    table = described(inspect.getdoc(ReductionOptions))
    said = described(inspect.getdoc(THINGS[name]))
    shared = said.keys() & table.keys()
    assert shared >= {"compression"} and {a: said[a] for a in shared} == {
        a: table[a] for a in shared
    }


def test_there_are_optimizers_and_tapes_to_compare():
    assert len(DISTRIBUTED) == 5


@pytest.mark.parametrize("name", THINGS)
def test_errors_that_a_docstring_promises_can_be_caught(name):
    """Of those that are not Python's or TensorFlow's."""
    text = (
        f"{inspect.getdoc(THINGS[name])}\n{inspect.getdoc(getattr(THINGS[name], '__init__', None))}"
    )
    ours = {error for error in vars(errors) if re.search(rf"(?<!\w){error}\b", text)}
    assert all(error in tfhvd.__all__ for error in ours if error.endswith("Error")), ours


def test_no_description_sends_the_reader_to_another_one():
    vague = {
        name: argument
        for name, thing in THINGS.items()
        if "Args:\n" in (inspect.getdoc(thing) or "")
        for argument, said in described(inspect.getdoc(thing)).items()
        if re.match(r"the same\.|see `", said)
    }
    assert not vague
