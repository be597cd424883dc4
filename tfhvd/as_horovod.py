"""Makes `import horovod.tensorflow as hvd` and its like give tfhvd.

    import tfhvd.as_horovod  # before the first import of horovod
    import horovod.tensorflow.keras as hvd

`tfhvdrun --as-horovod -np 2 python train.py` does it without a change to the script. An installed
Horovod is not touched, and not used. What differs: docs/migrating.md.
"""

from tfhvd.horovod_alias.modules import HOROVOD_VERSION, MODULES, install

__all__ = ["HOROVOD_VERSION", "MODULES", "install"]

install()
