"""Data of a job: each rank's part of them, in an order that does not depend on the ranks.

`hvd.shard` is in shard.py. A rank's samples: partition.py (`hvd.shard`), slices.py (Batches).

Example:
    >>> batches = hvd.data.Batches((x, y), global_batch=256, shuffle=True)
    >>> model.fit(batches, epochs=10)
"""

from tfhvd.data.batches import Batches
from tfhvd.data.cursor import Position
from tfhvd.data.record_files import RecordFiles

__all__ = ["Batches", "Position", "RecordFiles"]
