"""What is kept of what ranks have got alike before they train."""

from __future__ import annotations

import json

import pytest

from tfhvd import errors
from tfhvd.protocol import messages
from tfhvd.runtime.elastic.call_log import FIT, MOST_BYTES, MOST_CALLS, NO_RESULT, Call, CallLog

EPOCH = Call("Broadcast", "resume_from_epoch", ("int32",))
SUM = Call("Allreduce", "", ("float32", "float32"))


def kept() -> CallLog:
    """Two calls, as they come to another process."""
    own = CallLog()
    assert own.keep(EPOCH, 2, [b"\0\1"]) and own.keep(SUM, 3, [b"", b"abc"])
    return CallLog.of_fields(json.loads(json.dumps(own.as_fields())))


def test_results_come_in_the_order_of_calls():
    told = kept()
    assert told.take(EPOCH) == [b"\0\1"]
    assert told.take(SUM) == [b"", b"abc"]


def test_another_call_is_an_error_that_names_both():
    with pytest.raises(errors.TfhvdError) as error:
        kept().take(SUM)
    assert "calls hvd.allreduce (float32, float32) here" in str(error.value)
    assert "called hvd.broadcast 'resume_from_epoch' (int32) before they trained" in str(
        error.value
    )
    with pytest.raises(errors.TfhvdError, match="called nothing more before they trained"):
        CallLog().take(EPOCH)


def test_there_is_room_for_what_a_program_agrees_on_and_for_no_model():
    full = CallLog()
    assert full.keep(EPOCH, MOST_BYTES, [bytes(MOST_BYTES)])
    assert not full.keep(EPOCH, 1, [b"1"])
    full = CallLog()
    assert all(full.keep(EPOCH, 0, [b""]) for _ in range(MOST_CALLS))
    assert not full.keep(EPOCH, 0, [b""], comes_later=True)


def test_what_is_kept_can_be_said_in_one_frame():
    many = Call("Allreduce", "", ("f",) * 20_000)
    for each, size in (
        (many, 3),
        (EPOCH, MOST_BYTES // MOST_CALLS),
        (Call(FIT, "\n" * 99, ()), 60),
    ):
        full = CallLog()
        while full.keep(each, size, [bytes(size)]):
            pass
        assert len(full.results) > 1
        assert (
            len(
                messages.frame_json(
                    messages.FrameKind.REPLAY_LOG, results=full.as_fields(), trained=1
                )
            )
            < messages.LIMIT
        )


def test_what_comes_later_takes_no_room_and_is_not_even_looked_at():
    def not_looked_at():
        raise AssertionError
        yield b""

    own = CallLog()
    assert own.keep(SUM, MOST_BYTES + 1, not_looked_at(), comes_later=True)
    assert own.keep(EPOCH, 2, [b"ab"], comes_later=True)
    told = CallLog.of_fields(json.loads(json.dumps(own.as_fields())))
    assert told.take(SUM) is None
    assert told.take(EPOCH) == [b"ab"]


def told_of(own: CallLog) -> CallLog:
    return CallLog.of_fields(json.loads(json.dumps(own.as_fields())))


def test_a_fit_that_is_over_is_one_of_the_calls():
    own, head = CallLog(), Call(FIT, "head", ())
    assert own.keep(EPOCH, 2, [b"\0\1"])
    told = told_of(own)
    assert told.take(EPOCH) == [b"\0\1"] and (told.trained, told.taken) == (0, 0)
    assert own.keep(head, 2, [b"{}"]) and own.keep(head, 0, NO_RESULT) and own.keep(SUM, 1, [b"a"])
    told.go_on(told_of(own))
    assert (told.trained, told.taken) == (2, 0)
    assert told.take(head) == [b"{}"] and told.taken == 1
    told.skip()  # which whoever comes has done by itself
    assert told.taken == 2 and told.take(SUM) == [b"a"]


def test_another_model_than_the_others_train_is_an_error():
    own = CallLog()
    assert own.keep(Call(FIT, "head", ()), 2, [b"{}"])
    with pytest.raises(errors.TfhvdError) as error:
        told_of(own).take(Call(FIT, "all", ()))
    assert "calls Model.fit 'all' here, but the others have called Model.fit 'head'" in str(
        error.value
    )
