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
        name: the prefix for the names of the reductions, before the variables' paths. By default
            the name of the wrapper and, for an optimizer, of the wrapped class.
        device_dense: the device that reduces dense gradients, "" for the device of the gradients.
        device_sparse: the device that reduces IndexedSlices, "" for the device of the slices.
        compression: the compression of gradients for the network, a member of `Compression`. With a
            state, such as `topk`, it reduces each gradient separately, and does not compress
            gradients for which it is unsuitable.
        sparse_as_dense: whether IndexedSlices become dense before the reduction. Otherwise the
            result is IndexedSlices, too, and rows or the whole tensor travel, whichever is smaller.
        op: Average, Sum, or, for dense gradients, Min, Max, Product or Adasum.
        gradient_predivide_factor: with Average, the divisor of gradients before the sum; the rest
            of the division by the number of ranks follows after the sum.
        backward_passes_per_step: how many calls are accumulated for one update. A new optimizer of
            Keras 3 accumulates them itself, as with `gradient_accumulation_steps`; for all other
            optimizers tfhvd does.
        average_aggregated_gradients: whether the gradients of the accumulated calls are averaged;
            otherwise they are added up.
        groups: a number of groups, or lists of variables, in which dense gradients are reduced
            together, all or none; with None tfhvd groups small gradients. IndexedSlices are reduced
            separately.
        num_groups: Horovod's old name of `groups`, for a number.
        process_set: the ranks that take part.
        local_layers: a Keras layer, or several, built or not, whose gradients are not reduced; None
            for no layer.
        scale_local_gradients: whether gradients of local variables are multiplied by the rank's
            share of an average: 1 / the number of ranks if all ranks have equal shares.
        quarantine: whether all ranks exclude a rank from a step in which one of its gradients is
            NaN or infinite: they average, or add up, the gradients of the other ranks. The result
            is zeros if no rank is left. No gradient travels before all are computed. Only for
            Average and Sum.

    Raises:
        ValueError: if the op is unknown; for a predivide factor that is not above 0, or without
            Average; for less than one pass; for a quarantine without Average or Sum; and for groups
            that are negative or name a variable twice.

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
        """Returns the options with this name, if they have no name."""
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
