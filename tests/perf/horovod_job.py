"""One rank of a job of Horovod, measured by tfhvd's own code: started by table.py.

    mpirun -np 2 HOROVOD/bin/python tests/perf/horovod_job.py --tensors 1x4 --model resnet50 \
        --seconds 0.5 --json FILE

HOROVOD is an environment that build_horovod.sh made. tfhvd is not built there: nothing but its
package tfhvd.bench is used, without its operations.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import horovod.tensorflow as hvd
import tensorflow as tf
from horovod.tensorflow.keras import DistributedOptimizer

from tfhvd.bench import options, subjects, training
from tfhvd.bench.measure import PackageRanks, measure
from tfhvd.bench.report import GRADIENTS, TRAINING, Row, carried
from tfhvd.bench.workloads import model

NAME = "Horovod"


def main() -> None:
    wanted = options.parse(sys.argv[1:])
    tf.config.threading.set_intra_op_parallelism_threads(wanted.threads)
    tf.config.threading.set_inter_op_parallelism_threads(wanted.threads)
    hvd.init()
    ranks = PackageRanks(hvd)
    rows = []
    setting = subjects.Setting()
    sets = [*wanted.tensors, *map(model, wanted.models)]
    for tensors, through in itertools.product(sets, wanted.through):
        found = [
            subjects.alone(tensors, setting, through),
            subjects.of_tensors(NAME, hvd, tensors, setting, through),
        ]
        workload = subjects.workload(tensors, through)
        for name, times in measure(found, wanted.effort, ranks).items():
            facts = (GRADIENTS, workload, name, tensors.bytes, len(tensors.shapes), times)
            rows.append(carried(*facts, ranks.size) if name == NAME else Row(*facts))
    if "tiny" in wanted.models:
        rounds = max(1, round(4 * wanted.effort.seconds))
        for name, times in training.measure_training(
            NAME, DistributedOptimizer, rounds, ranks
        ).items():
            rows.append(Row(TRAINING, "fit of tiny", name, 0, 0, times, images_per_second=0.0))
    if ranks.rank == 0 and wanted.json:
        wanted.json.write_text(json.dumps({"rows": [row.to_json() for row in rows]}) + "\n")
    hvd.shutdown()


main()
