"""ProfileCallback: where the time of some steps of `fit` goes."""

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
    """Records some steps, and prints where their time went at the end of the epoch.

    All ranks that train the model need it, without an `if`; the first of them prints. See
    `hvd.profile` for what it says.

    Args:
        steps: how many steps of an epoch it records, fewer where the epoch has fewer.
        skip: how many come before them, in which functions are traced, for instance.
        epochs: in how many epochs.
        page: a file that the first rank writes for each report, to be opened in a browser: the
            report as pictures; "{epoch}" in its name is the number of the epoch.

    Attributes:
        report: the last one; None before the end of the first epoch.

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
        """Agrees on the epochs that are done, where ranks may come that have seen none of them."""
        if membership.is_elastic:
            done = allreduce(self._epochs_done, op=Max, name="ProfileCallback/epochs")
            self._epochs_done = int(done)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Counts anew."""
        self._done, self._trace = 0, None
        known = (self.params or {}).get("steps")
        self._skip = min(self.skip, known // 2) if known else self.skip

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Begins to record after the steps that are skipped."""
        wanted = self._epochs_done < self.epochs and self._trace is None
        if wanted and self._recorder is None and self._done >= self._skip:
            self._recorder = Recorder()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Notes that a step is over."""
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
            print(flush=True)  # Keras' bar of progress has no end of its line
            page = None if self.page is None else os.fspath(self.page)
            tell(self.report, page and page.replace("{epoch}", str(epoch)))

    def on_train_end(self, logs: Logs = None) -> None:
        """Ends what is recorded where the epoch has not come to its end."""
        self._end()

    def _end(self) -> None:
        if self._recorder is not None:
            self._trace = self._recorder.stop()
            self._recorder = None
