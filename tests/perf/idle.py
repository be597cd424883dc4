"""CPU time of a job that does nothing: each rank's share of a core over ten seconds.

    tfhvdrun -np 2 python tests/perf/idle.py [--seconds 10] [--json FILE]

TensorFlow is loaded and one collective is done before, as in a job that waits for data.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import tensorflow as tf

import tfhvd as hvd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", type=Path, help="write the shares to this file as well")
    arguments = parser.parse_args()
    hvd.init()
    hvd.allreduce(tf.ones([1]), name="before")
    time.sleep(1.0)  # What the collective leaves behind is not idling.
    used, began = time.process_time(), time.monotonic()
    time.sleep(arguments.seconds)
    share = (time.process_time() - used) / (time.monotonic() - began)
    shares = hvd.allgather_object(share)
    if hvd.rank() == 0:
        for rank, value in enumerate(shares):
            print(f"rank {rank} idle: {value:.3%} of a core", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(shares) + "\n")
    hvd.shutdown()


main()
