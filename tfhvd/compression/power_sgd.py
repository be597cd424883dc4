"""PowerSGD: sends a low-rank approximation of each matrix (Vogels et al., 2019)."""

from __future__ import annotations

import tensorflow as tf

from tfhvd.compat.variables import state_variable
from tfhvd.compression.stateful import Exchange, StatefulCompression


class PowerSGD(StatefulCompression):
    """A compression that sends a low-rank approximation of each gradient, with error feedback.

    A gradient of shape [..., m] is taken as a matrix of n rows and m columns; n is the product of
    the other dimensions. Two matrices travel, of n and m rows and `rank` columns, each reduced over
    the ranks: `(n + m) * rank` numbers instead of `n * m`. Gradients with one dimension, and
    gradients for which this saves nothing, travel unchanged. Each update makes one step of the
    power method, and begins with the factor of the last update. Every rank computes the result from
    the same factors. The processors of the ranks must be of one kind: otherwise the results differ
    in their last bits.

    The state of a variable is the error, of the gradient's shape, and a factor of shape [m, rank],
    which is the same on every rank.

    Args:
        rank: the number of columns of the factors, 1 or more; 1 to 4 are usual.

    Raises:
        ValueError: if `rank` is below 1.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(
        ...     keras.optimizers.SGD(0.1), compression=hvd.Compression.powersgd(rank=2)
        ... )
    """

    def __init__(self, rank: int = 2) -> None:
        if rank < 1:
            raise ValueError(f"Received: rank={rank}. Expected: 1 or more.")
        super().__init__()
        self.rank = rank
        self._factors: list[tf.Variable] = []

    @property
    def shared_state(self) -> list[tf.Variable]:
        """The factors."""
        return list(self._factors)

    def _pays(self, tensor: tf.Tensor | tf.Variable) -> bool:
        if tensor.shape.rank < 2:
            return False
        rows, columns = _matrix(tensor)
        return (rows + columns) * self.rank < rows * columns

    def _add_state(self, variable: tf.Variable, index: int) -> None:
        _, columns = _matrix(variable)

        def begin() -> tf.Tensor:  # the same on every rank
            return tf.random.stateless_normal([columns, self.rank], seed=[index, columns])

        self._factors.append(state_variable(begin, tf.float32, "factor"))

    def _exchange(
        self, whole: tf.Tensor, index: int, exchange: Exchange
    ) -> tuple[tf.Tensor, tf.Tensor]:
        factor = self._factors[index]
        matrix = tf.reshape(whole, _matrix(whole))
        left = _orthonormal(exchange.reduce(matrix @ _orthonormal(factor), "left"))
        own = tf.matmul(matrix, left, transpose_a=True)
        right = exchange.reduce(own, "right")
        exchange.keep(factor, right)
        sent = tf.matmul(left, own, transpose_b=True)
        reduced = tf.matmul(left, right, transpose_b=True)
        return tf.reshape(sent, whole.shape), tf.reshape(reduced, whole.shape)


def _matrix(tensor: tf.Tensor | tf.Variable) -> tuple[int, int]:
    columns = tensor.shape[-1]
    return tensor.shape.num_elements() // max(columns, 1), columns


def _orthonormal(matrix: tf.Tensor | tf.Variable) -> tf.Tensor:
    return tf.linalg.qr(tf.convert_to_tensor(matrix), full_matrices=False).q
