"""What the tests of operations share: eager and tf.function, and data that differs by rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfhvd as hvd

INTEGERS = (
    *(tf.uint8, tf.int8, tf.int32, tf.int64),
    *(tf.int16, tf.uint16, tf.uint32, tf.uint64),
)
FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
NUMBERS = (*INTEGERS[:4], *FLOATS, *INTEGERS[4:])
COMPLEX = (tf.complex64, tf.complex128)

in_both_modes = pytest.mark.parametrize("mode", ["eager", "function"])
in_all_modes = pytest.mark.parametrize("mode", ["eager", "function", "compiled"])


def run(mode: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function eagerly, or as a tf.function, which XLA compiles or not."""
    if mode == "eager":
        return function(*arguments)
    return tf.function(function, jit_compile=mode == "compiled" or None)(*arguments)


def of_ranks(shape: tuple[int, ...], dtype: tf.DType, seed: int = 0) -> list[np.ndarray]:
    """Every rank's values: small whole numbers from -2 to 3 (0 to 3 without sign), as int64."""
    low = 0 if dtype.is_unsigned else -2
    return [
        np.random.default_rng([seed, rank]).integers(low, 4, shape) for rank in range(hvd.size())
    ]


def mine(values: list[np.ndarray], dtype: tf.DType) -> tf.Tensor:
    """This rank's values as a tensor."""
    return tf.cast(tf.constant(values[hvd.rank()]), dtype)


def numbers(tensor: Any) -> np.ndarray:
    """A tensor's values as float64, or complex128."""
    return tf.cast(tensor, tf.complex128 if tensor.dtype.is_complex else tf.float64).numpy()
