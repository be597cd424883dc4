"""What the doctor asks the probes, and what it makes of those that do not answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import surveys

from tfhvd._version import __version__
from tfhvd.tools.doctor import examine, probe, probes
from tfhvd.tools.doctor.budget import Budget
from tfhvd.tools.doctor.checks import meeting

LATE = {"late": True}


def hello(rank: int, version: str = __version__) -> dict[str, object]:
    return {"rank": rank, "host": f"h{rank}", "version": version, "port": 0}


@contextmanager
def a_probe(answers: dict[str, object | None], rank: int = 0) -> Iterator[probes.Probe]:
    """One that answers as it is told; what it is not told ends it.

    None is for silence; LATE is said before the next answer only.
    """
    ours, theirs = socket.socketpair()
    held: list[str] = []

    def serve() -> None:
        with theirs, theirs.makefile("rw", encoding="utf-8") as file:
            for line in file:
                question = json.loads(line)
                if question["ask"] not in answers:
                    return
                said = answers[question["ask"]]
                if said is not None:
                    number = question["number"]
                    held.append(json.dumps({"number": number, "answer": said}))
                if said is not None and said != LATE:
                    print("\n".join(held), file=file, flush=True)
                    held.clear()

    thread = threading.Thread(target=serve)
    thread.start()
    found = probes.Probe(ours, hello(rank))
    try:
        yield found
    finally:
        found.close()
        thread.join()


def test_a_question():
    with a_probe({"time": {"time": 3.5}}) as one:
        assert one.ask("time", 5.0) == {"time": 3.5}


def test_a_probe_that_is_silent_and_one_that_has_ended():
    with a_probe({"meet": None}) as one, pytest.raises(probes.ProbeTimeoutError, match="rank 0"):
        one.ask("meet", 0.05)
    with a_probe({}) as one, pytest.raises(probes.ProbeError, match="the probe has ended") as e:
        one.ask("meet", 5.0)
    assert not isinstance(e.value, probes.ProbeTimeoutError)


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one():
    with a_probe({"measure": LATE, "time": {"time": 1.0}}) as one:
        with pytest.raises(probes.ProbeTimeoutError):
            one.ask("measure", 0.05)
        assert one.ask("time", 5.0) == {"time": 1.0}


class FakeProbes:
    """`by_rank`, and answers to each question; an exception is that of the probe."""

    def __init__(self, answers: dict[str, dict[int, object]], **versions: str) -> None:
        self._answers = answers
        self.ended = False
        ranks = max(map(len, answers.values()), default=2)
        ours, theirs = socket.socketpair()
        self._sockets = (ours, theirs)
        self.by_rank = {
            rank: probes.Probe(ours, hello(rank, versions.get(f"h{rank}", __version__)))
            for rank in range(ranks)
        }

    def wait(self, limit: float) -> None:
        assert limit > 0

    def ask_all(self, what: str, limit: float):
        said = self._answers[what]
        errors = {r: a for r, a in said.items() if isinstance(a, probes.ProbeError)}
        return {r: a for r, a in said.items() if r not in errors}, errors

    def end(self) -> None:
        self.ended = True

    def finish(self) -> bool:
        return True

    def why_ended(self) -> str:
        return "mpirun was killed"

    def close(self) -> None:
        for one in self.by_rank.values():
            one.close()
        self._sockets[1].close()


@contextmanager
def fake(*answers: object, **versions: str) -> Iterator[FakeProbes]:
    made = FakeProbes(*answers, **versions)
    try:
        yield made
    finally:
        made.close()


def test_a_probe_of_another_version_is_asked_nothing():
    with fake({"facts": {0: None, 1: None}}, h1="0.0.1") as two:
        survey, findings = examine.examine(two, [], Budget())
    assert survey is None
    assert findings[0].text == "tfhvd differs: 0.0.1 on rank 1 (host h1)"


@pytest.mark.parametrize(
    ("answer", "said", "ended"),
    [
        (probes.ProbeTimeoutError("late"), meeting.HANGS, True),
        (probes.ProbeError("gone"), "mpirun was killed", False),
        ({"error": "no MPI"}, "no MPI", False),
        ({"error": ""}, "", False),
    ],
)
def test_what_becomes_of_a_meeting(monkeypatch, answer, said, ended):
    ranks = {r: f.to_json() for r, f in surveys.job("a", "b").items()}
    monkeypatch.setattr(examine, "_links", lambda *all: ([], 0))
    monkeypatch.setattr(examine, "_clocks", lambda *all: [])
    monkeypatch.setattr(FakeProbes, "warnings", lambda self: [], raising=False)
    with fake({"facts": ranks, "meet": {0: {"error": ""}, 1: answer}}) as two:
        survey, findings = examine.examine(two, ["eth0"], Budget())
        assert two.ended is ended
    assert findings == [] and survey.nics == ("eth0",)
    assert survey.meeting == {0: "", 1: said}


def test_a_probe_that_has_no_facts():
    error = probes.ProbeTimeoutError("rank 1 (host b) has not answered within 8 s")
    with fake({"facts": {0: surveys.facts("a").to_json(), 1: error}}) as two:
        survey, findings = examine.examine(two, [], Budget())
    assert survey is None
    assert [finding.text for finding in findings] == [str(error)]


def test_a_budget():
    assert Budget(100.0).take(7.0) == 7.0
    assert 0 < Budget(3.0).take(7.0) <= 3.0
    assert Budget(0.0).take(7.0) == 1.0
    assert Budget(0.0).take(7.0, least=5.0) == 5.0


def test_what_a_probe_answers(monkeypatch):
    environ = {"OMPI_COMM_WORLD_RANK": "3", "CUDA_VISIBLE_DEVICES": "1"}
    one = probe.Probe(environ, "t" * 32)
    assert (one.hello()["rank"], one.hello()["version"]) == (3, __version__)
    assert one.answer({"ask": "facts"})["visible_gpus"] == "1"
    assert one.answer({"ask": "time"})["time"] > 0
    where = {"addresses": ["127.0.0.1"], "port": one.hello()["port"], "seconds": 0.05}
    assert one.answer({"ask": "measure", **where})["up"] > 0
    with pytest.raises(ValueError, match="not a question"):
        one.answer({"ask": "anything"})
