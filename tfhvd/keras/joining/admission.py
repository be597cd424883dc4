"""Admission: decides when a `fit` of several ranks admits the ranks that wait to join."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tfhvd.job import process
from tfhvd.keras.wrap.model_state import may_reduce
from tfhvd.ops.admission import waiting_ranks
from tfhvd.runtime.elastic.replay import comers
from tfhvd.runtime.membership import membership

if TYPE_CHECKING:
    from tfhvd.compat.types import Model

_logger = logging.getLogger("tfhvd")


class Admission:
    """The decision of one `fit` to admit ranks.

    Args:
        model: of either Keras.

    Attributes:
        is_open: whether a joining rank, which begins the program, can meet the others in this
            `fit`.
    """

    def __init__(self, model: Model) -> None:
        self._is_first = comers.trained == 0
        self.is_open = may_reduce(model) and comers.begin_training()
        self._warned = False

    def is_due(self, *, in_process_set: bool, epoch: int, is_last: bool) -> bool:
        """Whether ranks wait that `fit` should admit now, after an epoch.

        A rank that joins after the last epoch trains nothing in this `fit`, and may join the next
        one instead. If a loop calls `fit` with one epoch each, there is no other moment.

        Args:
            in_process_set: whether only a part of the job's ranks trains in this `fit`.
            epoch: the number of this epoch in this `fit`, from 1.
            is_last: whether this was the last epoch.
        """
        if membership.lets_in_at_commits or waiting_ranks() == 0:
            return False
        if self.is_open and not in_process_set:
            return not is_last or (epoch == 1 and not self._is_first)
        if not self._warned and process.rank() == 0:
            self._warned = True
            _logger.warning(
                "Ranks wait to take part, and are not let in: they would begin the program, which "
                "has something before this fit that they cannot do without the others, or trains "
                "in a process set. Let them in at commits: hvd.elastic.run."
            )
        return False
