"""Rules with which `tf.vectorized_map` and `jacobian` replace many calls of an operation by one.

They call the rule of each kind of operation in the function once, with the inputs of all calls. The
list of rules is not public (TensorFlow 2.16 to 2.21).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfhvd.compat import private
from tfhvd.errors import UnavailableError

# Maps the operation in the function, and its inputs, to its outputs. The first dimension of inputs
# and outputs is an additional one: the calls.
Rule = Callable[[tf.Operation, Sequence[tf.Tensor]], Sequence[tf.Tensor]]


def add_rule(kind: str, rule: Rule) -> None:
    """Adds the rule for a kind of operation; does nothing if TensorFlow has no list of rules.

    Args:
        kind: the kind of operation.
        rule: the rule. If no input differs between the calls, the rule gets inputs for one call,
            and its outputs are for all calls.
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
