"""Marks for tests that compile collectives with XLA.

TensorFlow before 2.20 brings no headers for that in its wheels without CUDA. A tfhvd that was built
with such a one says so where a compiled function calls a collective: test_compiled.py of tests/xla.
"""

from __future__ import annotations

import pytest

from tfhvd.runtime.native import chosen_ops

needs_xla = pytest.mark.skipif(
    not chosen_ops().xla,
    reason=f"no collectives for XLA in a build with TensorFlow {chosen_ops().tensorflow}",
)
COMPILED = pytest.param("compiled", marks=needs_xla)
