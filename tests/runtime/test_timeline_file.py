"""What is added to a timeline once the engine has closed it; and what is left alone."""

import json

import pytest

from tfhvd.telemetry.timeline_file import TimelineFile

SINCE = 50.0  # seconds
MADE = {"ph": "X", "name": "step", "ts": 60e6, "dur": 1, "pid": 5, "tid": 1}


def written(path, ts=51e6, closing="\n]\n"):
    first = {"ph": "M", "name": "process_name", "ts": ts, "pid": 5, "tid": 0}
    path.write_text(f"[\n{json.dumps(first)},\n{json.dumps(dict(first, ph='i'))}{closing}")
    return path.read_text()


def recorded(path, rank=0, generation=0):
    """What was recorded to a path has an event added, before it is closed."""
    own = TimelineFile()
    own.begin(str(path), rank, SINCE)
    own.add(lambda row: [dict(MADE, pid=row)], generation)
    own.end()


@pytest.mark.parametrize(("name", "rank"), [("t.json", 0), ("t.{rank}.json", 3)])
def test_events_are_added(tmp_path, name, rank):
    path = tmp_path / name.replace("{rank}", str(rank))
    written(path)
    recorded(tmp_path / name, rank)
    events = json.loads(path.read_text())
    assert len(events) == 3 and events[2] == MADE


def test_a_rank_that_writes_no_file_adds_nothing(tmp_path):
    before = written(tmp_path / "t.json")
    recorded(tmp_path / "t.json", rank=1)
    assert (tmp_path / "t.json").read_text() == before


@pytest.mark.parametrize(
    ("about", "why"),
    [({"ts": 49e6}, "earlier recording"), ({"closing": ""}, "not complete")],
)
def test_another_file_is_left_as_it_is_which_is_said(tmp_path, caplog, about, why):
    before = written(tmp_path / "t.json", **about)
    recorded(tmp_path / "t.json")
    assert (tmp_path / "t.json").read_text() == before
    assert why in caplog.text


def test_a_file_that_is_not_there_is_said(tmp_path, caplog):
    recorded(tmp_path / "t.json")
    assert "The steps that were profiled are not in" in caplog.text
    assert not (tmp_path / "t.json").exists()


def test_members_of_an_elastic_job_that_have_changed_write_another_file(tmp_path):
    before = written(tmp_path / "t.json")
    recorded(tmp_path / "t.json", generation=1)
    assert (tmp_path / "t.json").read_text() == before
