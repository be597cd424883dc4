"""What ranks.py makes of jobs that do not end well."""

from __future__ import annotations

import time

import mpi
import ranks


def test_a_job_that_ends_badly_fails_its_last_test():
    tests = [f"tests/rank_samples/ends_badly.py::test_{name}[np1]" for name in ("first", "last")]
    results = ranks._run(1, tests)
    first = results[tests[0]]
    assert (first.outcome, first.text) == ("passed", "")
    assert first.seconds > 0.1  # with the start of the job
    assert results[tests[1]].outcome == "failed"
    assert "and then their job failed:\nexit code 3" in results[tests[1]].text


def test_a_job_hangs_when_it_gives_no_sign_of_life(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = ranks.Progress(tmp_path, ranks=2, tests=2)

    def seconds_left(*files: str) -> float:
        for name in files:
            (tmp_path / name).touch()
        return progress.deadline() - now[0]

    test = ranks.SECONDS_PER_TEST + ranks.SECONDS_TO_SPARE
    assert seconds_left("tests.json") == mpi.SECONDS_TO_START
    now[0] += 10
    assert seconds_left() == mpi.SECONDS_TO_START - 10
    assert seconds_left("0.0.begun") == test
    now[0] += 10
    assert seconds_left() == test - 10
    assert seconds_left("0.0.json", "0.1.begun", "0.1.json", "1.0.begun", "1.0.json") == test
    now[0] += 10
    end = ranks.SECONDS_AT_THE_END + ranks.SECONDS_TO_SPARE
    assert seconds_left("1.1.begun", "1.1.json") == end


def test_the_job_of_a_test_is_known_by_its_name():
    for name, job in {
        "tests/keras/test_tape.py::test_a[np2]": "tests/keras on 2",
        "tests/keras/test_tape.py::TestB::test_c[eager-np4-keras]": "tests/keras on 4",
        "tests/keras/test_tape.py::test_d[eager-np1]": "tests/keras on 1",
        "tests/keras/test_tape.py::test_e[np-2]": "",
        "tests/keras/test_tape.py::test_np2": "",
    }.items():
        assert ranks.job_of(name) == job, name
