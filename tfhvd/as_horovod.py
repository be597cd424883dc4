"""Makes `import horovod.tensorflow as hvd` and similar imports give tfhvd.

    import tfhvd.as_horovod  # before the first import of horovod
    import horovod.tensorflow.keras as hvd

`tfhvdrun --as-horovod -np 2 python train.py` does this without a change to the script. An installed
Horovod is neither changed nor used. For the differences see docs/migrating.md.
"""

from tfhvd.horovod_alias.modules import HOROVOD_VERSION, MODULES, install

__all__ = ["HOROVOD_VERSION", "MODULES", "install"]

install()
