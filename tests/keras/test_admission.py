"""When a `fit` lets in ranks that wait."""

from __future__ import annotations

import logging

import pytest

from tfhvd.keras.joining import admission
from tfhvd.runtime.elastic.replay import Replay


@pytest.fixture
def comers(monkeypatch):
    """Those of a job of which this process is a member, and that lets ranks in."""
    own = Replay()
    own.begin_training = lambda: True
    monkeypatch.setattr(admission, "comers", own)
    monkeypatch.setattr(admission, "may_reduce", lambda model: True)
    monkeypatch.setattr(admission, "waiting_ranks", lambda: 1)
    monkeypatch.setattr(admission.process, "rank", lambda: 0)
    return own


def is_due(epoch: int, is_last: bool, in_process_set: bool = False) -> bool:
    fit = admission.Admission(None)
    return fit.is_due(in_process_set=in_process_set, epoch=epoch, is_last=is_last)


def test_ranks_come_between_two_epochs(comers):
    assert is_due(1, False) and is_due(7, False)
    assert not is_due(7, True)


def test_they_come_after_the_only_epoch_of_a_fit_that_follows_another_one(comers):
    assert not is_due(1, True)  # which may be the only one of the program
    comers.train_alone()
    assert is_due(1, True) and not is_due(2, True)


def test_nobody_comes_where_nobody_waits_or_at_commits_alone(comers, monkeypatch):
    monkeypatch.setattr(admission, "waiting_ranks", lambda: 0)
    assert not is_due(1, False)
    monkeypatch.setattr(admission, "waiting_ranks", lambda: 1)
    monkeypatch.setattr(admission.membership, "lets_in_at_commits", True)
    assert not is_due(1, False)


def test_who_cannot_come_is_told_of_once(comers, caplog):
    comers.begin_training = lambda: False
    fit = admission.Admission(None)
    with caplog.at_level(logging.WARNING, "tfhvd"):
        for epoch in (1, 2):
            assert not fit.is_due(in_process_set=False, epoch=epoch, is_last=False)
        assert not is_due(1, False, in_process_set=True)
    assert [line.message[:29] for line in caplog.records] == 2 * ["Ranks wait to take part, and "]
