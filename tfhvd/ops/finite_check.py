"""Whether the tensors of a step are finite: each rank looks at its own, and all of them hear.

A rank's vote travels with its tensors and costs no round of its own; from the votes together every
rank knows in the same step whose tensors are not finite. The engine keeps count, and says it: see
`cc/flow/finite_vote.h`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tensorflow as tf

from tfhvd.ops import _kernels

# As in cc/flow/finite_vote.h: `FoundNotFinite`, in its order, and `kDigit`.
_NOTHING = (-1, 0, -1, -1, 0)
_DIGIT = 64


class FiniteCheck:
    """Of the tensors of one step, before they are reduced.

    Args:
        buckets: what is reduced together, in the order in which it is there: pairs of the numbers
            of tensors and the tensors.
        most: how many values of each tensor are looked at, from its first; 0 for all.

    Attributes:
        vote: this rank's, a float32 tensor of 7 values, to be reduced as the tensors are.
        tensors: by their numbers, what is to be reduced in their place: reductions work in place,
            which they can once nobody else reads.
    """

    def __init__(
        self, buckets: Iterable[tuple[Sequence[int], Sequence[tf.Tensor]]], most: int = 0
    ) -> None:
        buckets = list(buckets)
        self.tensors: dict[int, tf.Tensor] = {}
        if tf.config.get_visible_devices("GPU"):
            self._found, self.vote = _look_by_tensorflow(buckets)
            return
        self._found = tf.constant(_NOTHING, tf.int64)
        for numbers, tensors in buckets:
            self._found, self.vote, same = _kernels.find_not_finite(
                self._found, numbers, tensors, most
            )
            self.tensors.update(zip(numbers, same))

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
        """Takes note of what the ranks say.

        Args:
            votes: the ranks' votes, reduced.
            reductions: whose steps they are, for messages.
            labels: the variables, by the numbers of the tensors.
            left_out: whether ranks whose tensors are not finite have no part.
            process_set_id: of the ranks that vote.

        Returns:
            An operation in a graph; None where it has run.

        Raises:
            tf.errors.InvalidArgumentError: if the job is to end with such a step. In a function it
                is its operation that fails.
        """
        if tf.executing_eagerly() and not votes.numpy()[1] > 0:
            labels = ()  # An eager call would convert each of them.
        return _kernels.note_not_finite(
            self._found, votes, reductions, labels, left_out, process_set_id
        )


def share_of_finite(votes: tf.Tensor) -> tf.Tensor:
    """Returns which part of the ranks' weights is of finite tensors: exactly 1 where all are."""
    return tf.math.divide_no_nan(votes[0], votes[0] + votes[1])


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
    return tf.stack(found), tf.stack(vote)


def _is_finite(tensor: tf.Tensor) -> tf.Tensor:
    if tensor.dtype.is_complex:
        return _is_finite(tf.math.real(tensor)) & _is_finite(tf.math.imag(tensor))
    return tf.reduce_all(tf.math.is_finite(tensor))
