"""What the arguments of the distributed optimizers and tapes say, in one object.

The public functions differ in their lists of arguments, which are Horovod's. Each makes one
`ReductionOptions` of all that it was given; nothing below passes arguments on one by one. Its
attributes are the table of what these arguments mean: the functions say it word for word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tfhvd.compat.variables import key_of
from tfhvd.compression import AnyCompression, Compression, has_state
from tfhvd.ops import Average, ReduceOp, Sum
from tfhvd.ops.reduce_op import chosen
from tfhvd.runtime.process_sets import ProcessSet, checked_id, global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Layer, Variable


@dataclasses.dataclass(frozen=True)
class ReductionOptions:
    """How gradients are reduced, and how many calls make an update.

    Attributes:
        name: what the names of the reductions begin with; the variables' paths follow. By default
            what wraps and, of an optimizer, the class that is wrapped.
        device_dense: the device on which dense gradients are reduced, "" for their own.
        device_sparse: the device on which IndexedSlices are reduced, "" for their own.
        compression: how gradients travel: a member of `Compression`. One with a state, such as
            `topk`, reduces each gradient on its own, and leaves alone those that it does not suit.
        sparse_as_dense: whether IndexedSlices are made dense before they are reduced. Otherwise
            they stay slices, and travel as rows or as a whole tensor, as is less to send.
        op: Average, Sum, or, for dense gradients, Min, Max, Product or Adasum.
        gradient_predivide_factor: with Average, what gradients are divided by before the sum; the
            rest of the division by the number of ranks follows the sum.
        backward_passes_per_step: how many calls are accumulated to one update. A new optimizer of
            Keras 3 does it itself, as its `gradient_accumulation_steps`; for all others tfhvd does.
        average_aggregated_gradients: whether those calls' gradients are averaged; otherwise they
            are added up.
        groups: into how many groups, or which lists of variables, dense gradients are put to be
            reduced together, all or none; None to have small ones put together. IndexedSlices are
            reduced on their own.
        num_groups: Horovod's old name for a number given as `groups`.
        process_set: the ranks that take part.
        local_layers: a Keras layer, or several, built or not, whose gradients stay each rank's own;
            None for no layer.
        scale_local_gradients: whether gradients of local variables are multiplied by the rank's
            share of an average: 1 / the number of ranks if all ranks count alike.
        quarantine: whether a rank of whose gradients in a step one is NaN or infinite has no part
            in that step, on all ranks alike: an average is that of the other ranks, a sum lacks the
            rank. Zeros if no rank is left. No gradient travels before all are computed. With
            Average and Sum.

    Raises:
        ValueError: for an op that is none, a predivide factor without Average or not above 0, less
            than one pass, a quarantine without Average or Sum, and groups that are negative or name
            a variable twice.

    Example:
        >>> options = ReductionOptions(op=Sum, groups=2).named("loop")
    """

    name: str | None = None
    device_dense: str = ""
    device_sparse: str = ""
    compression: AnyCompression = Compression.none
    sparse_as_dense: bool = False
    op: ReduceOp = Average
    gradient_predivide_factor: float = 1.0
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    groups: int | Sequence[Sequence[Variable]] | None = None
    num_groups: dataclasses.InitVar[int] = 0
    process_set: ProcessSet = global_process_set
    local_layers: Layer | Iterable[Layer] | None = None
    scale_local_gradients: bool = True
    quarantine: bool = False

    def __post_init__(self, num_groups: int) -> None:
        """Refuses what cannot be meant: see the class."""
        object.__setattr__(self, "op", chosen(self.op, None))
        object.__setattr__(self, "groups", self.groups or num_groups or None)
        checked_id(self.process_set)
        self._check_factors()
        self._check_groups()
        if self.quarantine and self.op not in (Average, Sum):
            raise ValueError(
                "quarantine leaves ranks out of averages and sums. "
                f"Received: quarantine=True, op={self.op}. Expected: Average or Sum."
            )
        if self.backward_passes_per_step < 1:
            raise ValueError(
                f"Received: backward_passes_per_step={self.backward_passes_per_step}. "
                "Expected: 1 or more."
            )

    def named(self, name: str) -> ReductionOptions:
        """Returns the same, with a name for what has none."""
        # `groups` already has the number; the first releases of Python 3.9 need its name anyway.
        return self if self.name else dataclasses.replace(self, name=name, num_groups=0)

    def _check_factors(self) -> None:
        if not self.gradient_predivide_factor > 0:
            raise ValueError(
                "gradient_predivide_factor divides the gradients. "
                f"Received: {self.gradient_predivide_factor}. Expected: a number above 0."
            )
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError(
                "gradient_predivide_factor splits the division of an average. "
                f"Received: gradient_predivide_factor={self.gradient_predivide_factor}, "
                f"op={self.op}. "
                "Expected: op=Average."
            )
        if has_state(self.compression) and (
            self.op not in (Average, Sum) or self.gradient_predivide_factor != 1.0
        ):
            raise ValueError(
                f"{type(self.compression).__name__} approximates sums. Received: op={self.op}, "
                f"gradient_predivide_factor={self.gradient_predivide_factor}. Expected: Average or "
                "Sum, and no gradient_predivide_factor."
            )

    def _check_groups(self) -> None:
        if isinstance(self.groups, int):
            if self.groups < 0:
                raise ValueError(
                    f"Received: groups={self.groups}. Expected: a number of groups, or lists."
                )
        elif self.groups is not None:
            keys = [key_of(variable) for group in self.groups for variable in group]
            if len(keys) != len(set(keys)):
                raise ValueError(
                    "A variable is in `groups` twice; put each variable into one group."
                )
