"""ProfileCallback: records some steps of `fit`, and reports how their time was spent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.wrap.model_state import process_set_of
from tfhvd.ops import Max, allreduce
from tfhvd.profiling.profile import tell, together
from tfhvd.profiling.recorder import Recorder
from tfhvd.profiling.report import Report
from tfhvd.profiling.trace import Trace
from tfhvd.runtime.membership import membership
from tfhvd.runtime.process_sets import global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs


class ProfileCallback(Callback):
    """Records some steps, and prints at the end of the epoch how their time was spent.

    All ranks that train the model need it, without an `if`; the first of them prints. See
    `hvd.profile` for the contents of the report.

    Args:
        steps: the number of steps of an epoch to record; all steps if the epoch has fewer.
        skip: the number of steps to skip before these, for example while functions are traced.
        epochs: the number of epochs to record.
        page: a file that the first rank writes for each report, with the report as pictures for a
            browser; "{epoch}" in its name is the number of the epoch.

    Attributes:
        report: the last report; None before the end of the first epoch.

    Raises:
        ValueError: for less than one step, or a negative number.

    Example:
        >>> model.fit(dataset, callbacks=[hvd.callbacks.ProfileCallback(steps=20)])
    """

    acts_on_batches = True
    meets_all_ranks = True

    def __init__(
        self,
        steps: int = 20,
        skip: int = 10,
        epochs: int = 1,
        page: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        if steps < 1 or skip < 0 or epochs < 0:
            raise ValueError(
                f"ProfileCallback: received steps={steps}, skip={skip}, epochs={epochs}. "
                "Expected: at least one step, and no negative numbers."
            )
        self.steps = steps
        self.skip = skip
        self.epochs = epochs
        self.page = page
        self.report: Report | None = None
        self._recorder: Recorder | None = None
        self._trace: Trace | None = None
        self._skip = 0  # of this epoch
        self._done = 0  # its steps
        self._epochs_done = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        """Agrees on the number of recorded epochs, which a joining rank does not know."""
        if membership.is_elastic:
            done = allreduce(self._epochs_done, op=Max, name="ProfileCallback/epochs")
            self._epochs_done = int(done)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Resets the count of steps."""
        self._done, self._trace = 0, None
        known = (self.params or {}).get("steps")
        self._skip = min(self.skip, known // 2) if known else self.skip

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Begins to record after the skipped steps."""
        wanted = self._epochs_done < self.epochs and self._trace is None
        if wanted and self._recorder is None and self._done >= self._skip:
            self._recorder = Recorder()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts the step, and ends the recording after the last one."""
        self._done += 1
        if self._recorder is not None:
            self._recorder.step()
            if self._done >= self._skip + self.steps:
                self._end()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Prints the report, on the first rank."""
        self._end()
        if self._epochs_done >= self.epochs:
            return
        self._epochs_done += 1
        ranks = process_set_of(self.model) or global_process_set
        self.report = together(self._trace, ranks) or self.report
        if self.report is not None and ranks.rank() == 0:
            print(flush=True)  # Keras' progress bar has not ended its line
            page = None if self.page is None else os.fspath(self.page)
            tell(self.report, page and page.replace("{epoch}", str(epoch)))

    def on_train_end(self, logs: Logs = None) -> None:
        """Ends the recording of an unfinished epoch."""
        self._end()

    def _end(self) -> None:
        if self._recorder is not None:
            self._trace = self._recorder.stop()
            self._recorder = None
