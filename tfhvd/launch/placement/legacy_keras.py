"""The choice of Keras 2 as `tf.keras` for scripts of Horovod, if tf_keras is installed.

Such scripts are written for Keras 2 (`optimizer.variables()`, `lr=`,
`experimental_run_tf_function=False`), whose successor is tf_keras. Since TensorFlow 2.16,
`tf.keras` is Keras 3 unless a variable asks for Keras 2 before the import of TensorFlow.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping

from tfhvd.protocol.variables import rank_of

VARIABLE = "TF_USE_LEGACY_KERAS"
NOTE = (
    f"tf.keras is Keras 2 here ({VARIABLE}=1), since scripts for Horovod are written for it. For "
    f"Keras 3 set {VARIABLE}=0"
)


def is_to_be_chosen(environ: Mapping[str, str]) -> bool:
    """Returns whether tf_keras is installed and the environment does not choose a Keras."""
    return VARIABLE not in environ and importlib.util.find_spec("tf_keras") is not None


def choose_here() -> None:
    """Makes `tf.keras` Keras 2 in this process unless it is too late; rank 0 prints a note."""
    if "tensorflow" in sys.modules or not is_to_be_chosen(os.environ):
        return
    os.environ[VARIABLE] = "1"
    if rank_of(os.environ) == 0:
        print(f"tfhvd.as_horovod: {NOTE}", file=sys.stderr, flush=True)
