"""Whether the tensors of a step are finite, and in proportion: ranks check, and tell all others.

A rank's vote travels with its tensors and costs no extra round; from all votes every rank knows in
the same step which ranks' tensors are not finite, or far larger than before. The engine counts,
keeps sizes, and warns: see `cc/flow/finite_vote.h`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tfhvd.ops import _kernels, compiled

# As in cc/flow/finite_vote.h: `FoundNotFinite`, in its order, and `kDigit`.
_NOTHING = (-1, 0, -1, -1, 0)
_DIGIT = 64
# As in the same file: where in a vote what begins, and how many values it has.
_OTHER, _UNUSUAL, _SUSPECT, _ABOVE, _VALUES = 1, 7, 8, 14, 15
_ALONE = 8.0


class FiniteCheck:
    """Of the tensors of one step, before they are reduced.

    Args:
        buckets: what is reduced together, in the order in which it is there: pairs of the numbers
            of tensors and the tensors.
        most: how many values of each tensor are looked at, from its first; 0 for all.
        sizes: under what name the tensors' sizes are remembered, which are looked at, too; "" if
            they are not.
        layers: by the number of a tensor, which layer it belongs to, as a number; for `sizes`.

    Attributes:
        vote: this rank's, a float32 tensor of 15 values, which is reduced like the tensors.
        tensors: by their numbers, the tensors to reduce in their place.
    """

    def __init__(
        self,
        buckets: Iterable[tuple[Sequence[int], Sequence[tf.Tensor]]],
        most: int = 0,
        sizes: str = "",
        layers: Sequence[int] = (),
    ) -> None:
        buckets = list(buckets)
        self.tensors: dict[int, tf.Tensor] = {}
        self._looks: dict[int, tf.Tensor] = {}  # what comes of the look at the tensor of a number
        if tf.config.get_visible_devices("GPU"):
            self._found, self.vote = _look_by_tensorflow(buckets)
            self._sizes = ""
            return
        self._sizes = "" if compiled.is_compiled() else sizes
        self._found = tf.constant(_NOTHING, tf.int64)
        for numbers, tensors in buckets:
            self._found, self.vote, same = _kernels.find_not_finite(
                self._found,
                numbers,
                tensors,
                most,
                [layers[number] for number in numbers] if self._sizes else [],
                self._sizes,
                tensors is buckets[-1][1],
            )
            self.tensors.update(zip(numbers, same))
            self._looks.update(dict.fromkeys(numbers, self._found))

    def over(self, numbers: Iterable[int]) -> AbstractContextManager[Any]:
        """Makes the operations of a graph that are made inside wait for the check of some tensors.

        Reductions work in place, which is possible once no other operation reads the tensors.
        """
        looks = [self._looks[number] for number in numbers if number in self._looks]
        return tf.control_dependencies(looks)

    @property
    def share(self) -> tf.Tensor:
        """What this rank counts where only finite tensors do: 1 or 0, float32."""
        return self.vote[0]

    def note(
        self,
        votes: tf.Tensor,
        reductions: str,
        labels: Sequence[str],
        left_out: bool,
        process_set_id: int,
    ) -> tf.Operation | None:
        """Records what the ranks say.

        Args:
            votes: the ranks' votes, reduced.
            reductions: whose steps they are, for messages.
            labels: the variables, by the numbers of the tensors.
            left_out: whether ranks whose tensors are not finite have no part.
            process_set_id: of the ranks that vote.

        Returns:
            An operation in a graph; None if it has run.

        Raises:
            tf.errors.InvalidArgumentError: if the job should end with such a step. In a function
                its operation fails.
        """
        if tf.executing_eagerly() and not votes.numpy()[[_OTHER, _SUSPECT]].any():
            labels = ()  # An eager call would convert each of them.
        return _kernels.note_not_finite(
            self._found, votes, reductions, labels, left_out, process_set_id, self._sizes
        )


def share_of_finite(votes: tf.Tensor) -> tf.Tensor:
    """Returns the share of the ranks' weights with finite tensors: exactly 1 if all are finite."""
    return tf.math.divide_no_nan(votes[0], votes[0] + votes[1])


def all_finite(votes: tf.Tensor) -> tf.Tensor:
    """Whether the tensors of all ranks are finite: a bool tensor without dimensions."""
    return tf.equal(votes[_OTHER], 0)


def in_proportion(votes: tf.Tensor) -> tf.Tensor:
    """Whether no rank's tensor is far larger than before: as the engine judges (`OutlierOf`)."""
    count, low, low_square, high, high_square = tf.unstack(votes[_SUSPECT : _SUSPECT + 5])

    def differ(digit: tf.Tensor, square: tf.Tensor) -> tf.Tensor:
        mean = tf.math.divide_no_nan(digit, count)
        return tf.abs(tf.math.divide_no_nan(square, count) - mean * mean) > 0.01

    several = differ(low, low_square) | differ(high, high_square)
    others = (_ALONE * votes[_UNUSUAL] > votes[_ABOVE]) | ~all_finite(votes)
    return several | others | tf.equal(count, 0)


def can_be_checked(tensor: tf.Tensor) -> bool:
    """Whether a tensor's type has values that are not finite."""
    return tensor.dtype.is_floating or tensor.dtype.is_complex


def _look_by_tensorflow(
    buckets: Sequence[tuple[Sequence[int], Sequence[tf.Tensor]]],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Looks by TensorFlow's operations, which run wherever the tensors are, at all their values."""
    numbers = [number for those, _ in buckets for number in those]
    bad = tf.stack([~_is_finite(tensor) for _, tensors in buckets for tensor in tensors])
    some = tf.reduce_any(bad)
    first = tf.gather(tf.constant(numbers, tf.int64), tf.argmax(tf.cast(bad, tf.int32)))
    count = tf.reduce_sum(tf.cast(bad, tf.int64))
    found = [tf.where(some, first, tf.constant(_NOTHING[0], tf.int64)), count]
    found += [tf.constant(value, tf.int64) for value in _NOTHING[2:]]
    other = tf.cast(some, tf.float32)
    rank = _kernels.rank()
    low, high = (tf.cast(part, tf.float32) for part in (rank % _DIGIT, rank // _DIGIT))
    digits = [low, low * low, high, high * high]
    vote = [1 - other, other, *[other * value for value in [*digits, tf.cast(first, tf.float32)]]]
    return tf.stack(found), tf.stack(vote + [tf.zeros([])] * (_VALUES - len(vote)))


def _is_finite(tensor: tf.Tensor) -> tf.Tensor:
    if tensor.dtype.is_complex:
        return _is_finite(tf.math.real(tensor)) & _is_finite(tf.math.imag(tensor))
    return tf.reduce_all(tf.math.is_finite(tensor))


@tf.RegisterGradient("TfhvdFindNotFinite")
def _gradient(forward: tf.Operation, *gradients: tf.Tensor | None) -> list[tf.Tensor | None]:
    """What was found, and the vote, have no gradient; tensors that are handed on are the same."""
    return [None, *(gradients[2:] or [None] * (len(forward.inputs) - 1))]
