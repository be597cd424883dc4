"""What `tf.vectorized_map` and `jacobian` make of operations: one call for a stack of inputs.

They call the rule of each kind of operation in the function once, with the inputs of all calls. The
list of rules is public nowhere (TensorFlow 2.16 to 2.21).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfhvd.compat import private
from tfhvd.errors import UnavailableError

# From the operation, as it is in the function, and its inputs to its outputs, all of them with one
# more dimension, the first: the calls.
Rule = Callable[[tf.Operation, Sequence[tf.Tensor]], Sequence[tf.Tensor]]


def add_rule(kind: str, rule: Rule) -> None:
    """Tells how to run all calls of an operation as one; where TensorFlow has no list, nothing.

    Args:
        kind: of the operation.
        rule: is called where an input differs between the calls. Where none does, the operation
            runs once for all of them.
    """
    where = "tensorflow.python.ops.parallel_for.pfor"
    purpose = "run collectives for all rows of a stack"
    with contextlib.suppress(UnavailableError):
        wrap = private.of_module(where, "wrap", purpose)

        def convert(given: Any) -> list[Any]:
            differ = any(each.is_stacked for each in given.inputs)
            if differ:
                given.stack_inputs()
                outputs = rule(given.op, [each.t for each in given.inputs])
            else:
                inputs = [each.t[tf.newaxis] for each in given.inputs]
                outputs = [output[0] for output in rule(given.op, inputs)]
            return [wrap(output, differ) for output in outputs]

        private.of_module(where, "RegisterPFor", purpose)(kind)(convert)
