"""Variables whose gradients an optimizer is about to have reduced, with those that have none.

Keras drops a variable without a gradient before it comes to the reduction. The place of a variable
among all is what ranks meet by: among those that are left, ranks that lack different gradients
would take one for the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, Variable

    Reduce = Callable[[Sequence[Gradient], Sequence[Variable]], list[Gradient]]


class Awaited(NamedTuple):
    """The variables of one update.

    Attributes:
        variables: all of them.
        there: which have a gradient.
    """

    variables: tuple[Variable, ...] = ()
    there: tuple[bool, ...] = ()

    @classmethod
    def of(cls, gradients: Iterable[Gradient], variables: Iterable[Variable]) -> Awaited:
        """Returns the variables of an update, in which some gradients may be None."""
        return cls(tuple(variables), tuple(gradient is not None for gradient in gradients))

    def with_gradients(self) -> list[Variable]:
        """Lists the variables that have a gradient."""
        return list(itertools.compress(self.variables, self.there))

    def reduced(self, gradients: Iterable[Gradient], reduce: Reduce) -> list[Gradient]:
        """Reduces the gradients that there are, each in its place among all.

        Args:
            gradients: of the variables that have one, in their order.
            reduce: is given all, with None for those that are missing.

        Example:
            >>> awaited = Awaited.of([None, 2.0], ["a", "b"])
            >>> awaited.reduced([3.0], lambda gradients, variables: [print(gradients), 6.0])
            [None, 3.0]
            [6.0]
        """
        given = iter(gradients)
        whole = [next(given) if there else None for there in self.there]
        return list(itertools.compress(reduce(whole, self.variables), self.there))
