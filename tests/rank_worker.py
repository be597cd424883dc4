"""The side of `ranks` within a rank: runs the job's tests in step with the other ranks."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

SECONDS_PER_TEST = 100
SECONDS_AFTER_FAILURE = 10  # for the other ranks, which may wait for this one
SECONDS_AT_THE_END = 45  # from the last test's end to that of the process


class Worker:
    """A plugin for pytest."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self._folder = folder
        self._ranks = ranks
        variables = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
        self._rank = int(next((os.environ[v] for v in variables if v in os.environ), "0"))
        self._number = 0
        self._outcome, self._texts = "passed", list[str]()
        self._began = 0.0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        tests = json.loads((self._folder / "tests.json").read_text())
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[test] for test in tests]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Any:
        import tfhvd as hvd

        hvd.init()
        assert hvd.size() == self._ranks
        yield
        # Not cancelled: it also holds while the process ends.
        faulthandler.dump_traceback_later(SECONDS_AT_THE_END, exit=True, file=sys.__stderr__)
        hvd.shutdown()
        self._end(1 if session.testsfailed else 0)

    def _end(self, code: int) -> None:
        """Ends the process once all that is registered for its end has run.

        No report is printed, for what plugins add to it may import much; and what the tests have
        left to the garbage collector is not freed one by one: TensorFlow takes a tenth of a second
        for each of the hundreds of iterators over a `tf.data.Dataset`.
        """
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        # What earlier tests have left Python's collector leaves alone within this one: to look at
        # it takes longer than some steps, and to free it a tenth of a second for each iterator over
        # a `tf.data.Dataset`. All other ranks would wait meanwhile.
        gc.freeze()
        self._file("begun").touch()
        self._outcome, self._texts = "passed", []
        self._began = time.monotonic()
        faulthandler.dump_traceback_later(SECONDS_PER_TEST, exit=True, file=sys.__stderr__)
        result = yield
        faulthandler.cancel_dump_traceback_later()
        self._report()
        self._number += 1
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._outcome = "failed"
            self._texts.append(f"{report.when}:\n{report.longreprtext}")
        elif report.skipped and self._outcome == "passed":
            self._outcome = "skipped"
            self._texts.append(str(report.longrepr))

    def _report(self) -> None:
        """Writes this rank's result, and waits for the others'. Ends the process if one failed."""
        draft = self._file("draft")
        result = {"outcome": self._outcome, "text": "\n".join(self._texts)}
        draft.write_text(json.dumps({**result, "seconds": time.monotonic() - self._began}))
        draft.rename(self._file("json"))
        patience = SECONDS_AFTER_FAILURE if self._outcome == "failed" else SECONDS_PER_TEST
        deadline = time.monotonic() + patience
        files = [self._folder / f"{self._number}.{rank}.json" for rank in range(self._ranks)]
        while not all(f.exists() for f in files) and time.monotonic() < deadline:
            time.sleep(0.002)
        outcomes = [json.loads(f.read_text())["outcome"] if f.exists() else "" for f in files]
        if "failed" in outcomes or "" in outcomes:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    def _file(self, kind: str) -> Path:
        return self._folder / f"{self._number}.{self._rank}.{kind}"
