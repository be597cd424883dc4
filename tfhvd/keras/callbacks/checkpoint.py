"""Checkpoint: `fit` saves while it trains, and continues at the end of an earlier job."""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfhvd.checkpoint.errors import CheckpointError
from tfhvd.checkpoint.manager import Manager
from tfhvd.compat import keras as keras_compat
from tfhvd.compat import metrics as metrics_compat
from tfhvd.compat import training
from tfhvd.compat.variables import key_of
from tfhvd.data import Position
from tfhvd.errors import NotSynchronizedError
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.fit import data_position
from tfhvd.keras.wrap.model_state import local_keys, process_set_of, step_of
from tfhvd.ops import allgather
from tfhvd.ops.sync_monitor import Step
from tfhvd.runtime.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs, Model

_logger = logging.getLogger("tfhvd")
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


class Checkpoint(Callback):
    """Saves the state of the training into a folder, and restores it when training begins.

    After SIGTERM to any rank, or `hvd.request_stop`, all ranks stop after the same step, save, and
    end with exit code 75: see `hvd.StopRequested`.

    All ranks need this callback, as the last of their callbacks. A checkpoint copies the state
    after a step. A thread of each rank then writes the rank's share while the training continues. A
    checkpoint is skipped if another one is being written when it is due. If a checkpoint cannot be
    written, it warns. If variables differ between ranks, it warns with their names, and saves
    nothing. The end of `fit` waits for the last checkpoint.

    With `hvd.data.Batches`, a training continues after the last saved step. With other data it
    continues at the beginning of this step's epoch: choose every="epoch" for other data.

    A checkpoint contains what `hvd.checkpoint.Manager` saves of a model, and the epoch and step of
    `fit`. It does not contain `History`, which begins with the epoch in which `fit` continues. Use
    one folder for one `fit`.

    Args:
        path: of the folder, on a file system that all ranks share.
        every: a time, such as "5 min", "30 s" or "1 h"; a number of steps; or "epoch". The end of
            `fit` is saved in any case.
        keep: the number of latest checkpoints to keep; None for all.
        resume: whether the first `fit` begins with the newest checkpoint of the folder.
        also: further objects by names, as for `Manager.save`; callbacks of Keras, too.

    Raises:
        ValueError: for another `every`.
        CheckpointError: when training begins, if the folder cannot have checkpoints, or if the
            newest one is of another model.

    Example:
        >>> checkpoint = hvd.callbacks.Checkpoint("run", every="5 min")
        >>> model.fit(batches, epochs=10, callbacks=[checkpoint])
    """

    meets_all_ranks = True
    acts_on_batches = True
    comes_last = True
    saves_before_stop = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: str | int = "5 min",
        keep: int | None = 3,
        resume: bool = True,
        also: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._schedule = _Schedule(every)
        self._path = path
        self._keep = keep
        self._resume = resume
        self._also = dict(also or {})
        self._manager: Manager | None = None
        self._training = False
        self._undo: Callable[[], None] | None = None
        self._metrics = _MetricStates()
        # The position of the training; `steps` counts all steps, also of earlier jobs.
        self._at = {"steps": 0, "epoch": 0, "step": 0}
        self._skipped = 0  # steps of the first epoch that an earlier job has made

    @property
    def _ranks(self) -> ProcessSet:
        return process_set_of(self.model) or global_process_set

    def on_train_begin(self, logs: Logs = None) -> None:
        """Restores the state, unless a rank trains already, as when other ranks join a job."""
        told = self._gather([self._training, self._at["steps"]])
        if told[:, 0].any():
            self._at["steps"] = int(told[:, 1].max())
        self._manager = self._manager or Manager(self._path, self._keep, self._ranks)
        if self._resume and not told[:, 0].any():
            self._resume = False
            self._restore(self._manager)
        self._training = True
        self._schedule.begin(self._at["steps"])

    def _restore(self, manager: Manager) -> None:
        step = manager.restore(self._objects(), local=self._local())
        if step is None:
            return
        self.has_restored = True
        epoch, done, batches = self._at["epoch"], self._at["step"], data_position.batches_of_fit()
        where = f"after step {done}"
        if done and (batches is None or done >= int(batches.cardinality()) > 0):
            where = "at its beginning, for only hvd.data.Batches know how far they are"
            if batches is not None:
                epoch, where = epoch + 1, "at its beginning"
                batches.position = Position(epoch)
            self._at.update(epoch=epoch, step=0)
            self._metrics.forget()
        self._skipped = self._at["step"]
        self._undo = training.begin_fit_at(self.model, epoch, 0)
        if self._ranks.rank() == 0:
            _logger.info(
                "fit continues with epoch %d (the first one is 0), %s: from the checkpoint of step "
                "%d in %s.",
                *(epoch, where if done else "at its beginning", step, self._path),
            )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Restores the state of metrics, if the training continues in the middle of an epoch."""
        self._let_begin_elsewhere()
        self._at["epoch"] = epoch
        self._at["step"] = self._skipped
        self._metrics.put(self.model, self._ranks.size())

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Saves if a checkpoint is due."""
        done = self._skipped + batch + 1
        made = done - self._at["step"]
        self._at["steps"] += made
        self._at["step"] = done
        self._metrics.add(self.model, self._ranks.size())
        is_last = self.awaits_end_of_epoch = done >= (self.params.get("steps") or math.inf)
        if self._manager is None:
            return
        if self._schedule.is_due(self._at["steps"], made, self._gather) and not is_last:
            self._save(self._manager)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Saves if a checkpoint was due in the last step, or is due after each epoch."""
        self._skipped = 0
        self._at.update(epoch=epoch + 1, step=0)
        told = self._gather([self._schedule.is_late, self._at["steps"]])
        self._at["steps"] = int(told[:, 1].max())  # some ranks may have made fewer steps
        if self._manager is not None and (told[:, 0].any() or self._schedule.every_epoch):
            self._save(self._manager)
        self._schedule.align(self._at["steps"])

    def on_train_end(self, logs: Logs = None) -> None:
        """Saves the end of `fit`, and waits until the checkpoint is written."""
        self.has_restored = False
        self._let_begin_elsewhere()
        self._training = False
        manager, self._manager = self._manager, None
        if manager is None:
            return
        if manager.busy and self._ranks.rank() == 0:
            _logger.info("fit waits for the checkpoint that is being written to %s.", self._path)
        self._try(manager.wait)
        if manager.committed != self._at["steps"]:
            self._save(manager)
        self._try(manager.close)
        if manager.skipped and self._ranks.rank() == 0:
            _logger.info(
                "fit skipped %d checkpoints, for another one was being written.", manager.skipped
            )

    def _save(self, manager: Manager) -> None:
        self._schedule.saved(self._at["steps"])
        if self._at["step"]:
            self._metrics.take(self.model, self._ranks.size())
        objects, local = self._objects(), self._local()
        self._try(lambda: manager.save(self._at["steps"], objects, local=local, wait=False))
        self._metrics.forget()

    def _objects(self) -> dict[str, Any]:
        batches = data_position.batches_of_fit()
        own = {"model": self.model, "fit": self._at, "metrics": self._metrics}
        return {**own, **({} if batches is None else {"batches": batches}), **self._also}

    def _local(self) -> list[Any]:
        keys = local_keys(self.model, step_of(self.model) or Step())
        optimizers = training.optimizers_of(self.model)
        slots = [v for o in optimizers for v in keras_compat.optimizer_variables(o)]
        return [v for v in [*self.model.variables, *slots] if key_of(v) in keys]

    def _let_begin_elsewhere(self) -> None:
        """Undoes the restored position: Keras decides again where the model's next `fit` begins."""
        if self._undo is not None:
            self._undo()
            self._undo = None

    def _try(self, act: Callable[[], object]) -> None:
        """Calls `act`; if it fails, which it does on all ranks together, warns and continues."""
        try:
            act()
        except (CheckpointError, NotSynchronizedError) as error:
            if self._ranks.rank() == 0:
                _logger.warning("%s The training continues without that checkpoint.", error)

    def _gather(self, values: list[float]) -> np.ndarray:
        row = tf.constant([[int(value) for value in values]], tf.int64)
        return allgather(row, name="Checkpoint/when", process_set=self._ranks).numpy()


class _Schedule:
    """The schedule of checkpoints, which are due after the same step on all ranks.

    If `every` is a time, the clock of the first rank decides. The ranks ask it after half of the
    steps that it expects until the checkpoint, and then again after half of the rest, because steps
    may become slower or faster.
    """

    def __init__(self, every: str | int) -> None:
        self.every_epoch = every == "epoch"
        self.is_late = False
        self._steps = every if isinstance(every, int) else 0
        self._seconds = 0.0
        text = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h)", str(every))
        if text and not isinstance(every, int):
            self._seconds = float(text[1]) * _UNITS[text[2]]
        if not (self.every_epoch or self._steps > 0 or self._seconds > 0):
            raise ValueError(
                f"Checkpoint: received every={every!r}. Expected: a time such as '5 min', '30 s' "
                "or '1 h', a number of steps above 0, or 'epoch'."
            )
        self._since = 0.0
        self._first = 0  # the steps at the time `_since`
        self._ask_at = 0

    def begin(self, steps: int) -> None:
        """Begins to count steps and time."""
        self.saved(steps)

    def saved(self, steps: int) -> None:
        """Records that a due checkpoint has begun or is skipped."""
        self.is_late = False
        self._since, self._first, self._ask_at = time.monotonic(), steps, steps + 1

    def align(self, steps: int) -> None:
        """Makes all ranks ask after the next step, as some may have made fewer steps before."""
        self._ask_at = steps + 1

    def is_due(self, steps: int, made: int, gather: Callable[[list[float]], np.ndarray]) -> bool:
        """Whether a checkpoint is due after a step.

        Args:
            steps: the number of steps so far.
            made: the number of steps since the last call.
            gather: returns the values of all ranks, a row for each rank.
        """
        if self._steps:
            self.is_late |= steps // self._steps > (steps - made) // self._steps
        elif self._seconds and steps >= self._ask_at:
            passed = time.monotonic() - self._since
            left = (self._seconds - passed) * (steps - self._first) / max(passed, 1e-6)
            told = gather([passed >= self._seconds, max(1, min(left, 1e9) / 2)])
            self.is_late |= bool(told[0, 0])
            self._ask_at = steps + int(told[0, 1])
        return self.is_late


class _MetricStates:
    """The state of one rank's metrics in the middle of an epoch."""

    def __init__(self) -> None:
        self._state: dict[str, Any] | None = None

    def get_state(self) -> dict[str, Any] | None:
        """Returns the state as plain values; None at the beginning of an epoch."""
        return self._state

    def set_state(self, state: dict[str, Any] | None) -> None:
        """Keeps the state until the epoch begins, because Keras resets metrics before that."""
        self._state = state

    def take(self, model: Model, ranks: int) -> None:
        """Copies the state of a model's metrics."""
        values = [[v.numpy() for v in states] for states in _metric_variables(model)]
        self._state = {"ranks": ranks, "values": values}

    def put(self, model: Model, ranks: int) -> None:
        """Restores the state of a model's metrics, if they exist, and metrics and ranks match."""
        if self._fits(model, ranks):
            self._give(model, lambda variable, value: variable.assign(value))

    def add(self, model: Model, ranks: int) -> None:
        """Adds the state to metrics that did not exist before the first step, after this step."""
        if self._state is None:
            return
        sums = all(map(metrics_compat.adds_up, metrics_compat.metrics_of(model)))
        if sums and self._fits(model, ranks):
            self._give(model, lambda variable, value: variable.assign_add(value))
        self._state = None

    def _fits(self, model: Model, ranks: int) -> bool:
        if self._state is None or self._state["ranks"] != ranks:
            return False
        shapes = [[tuple(v.shape) for v in variables] for variables in _metric_variables(model)]
        return shapes == [[np.shape(v) for v in values] for values in self._state["values"]]

    def _give(self, model: Model, act: Callable[[tf.Variable, Any], object]) -> None:
        assert self._state is not None
        for variables, values in zip(_metric_variables(model), self._state["values"]):
            for variable, value in zip(variables, values):
                act(variable, value)
        self._state = None

    def forget(self) -> None:
        """Drops the state."""
        self._state = None


def _metric_variables(model: Model) -> list[list[tf.Variable]]:
    return [list(metrics_compat.states_of(m)) for m in metrics_compat.metrics_of(model)]
