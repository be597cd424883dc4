"""What `import horovod` finds under `tfhvdrun --as-horovod`: it leaves its place to tfhvd.

`tfhvdrun --as-horovod` puts the folder above this one at the head of PYTHONPATH, so that it works
for scripts, `python -m`, and programs that start Python themselves.
"""

import importlib
import sys

del sys.modules[__name__]
importlib.import_module("tfhvd.as_horovod")
