"""``python -m tfhvd.bench``: how long collectives take here, beside what else a user could pick.

    tfhvdrun -np 2 python -m tfhvd.bench --help

| module      | in one sentence                                                                  |
|-------------|----------------------------------------------------------------------------------|
| cli         | Words -> Options, with one clear line for each mistake; the program.             |
| workloads   | What is measured: sizes, and the gradients of real models.                       |
| metrics     | Times and bandwidths from seconds: pure functions.                               |
| collectives | Each collective as a call, with the bytes that it counts and what it must give.  |
| measure     | Runs several subjects in turn, in step with the other ranks.                     |
| subjects    | What is timed for a workload: ours and TensorFlow's share.                       |
| training    | Throughput of `model.fit`, alone and together.                                   |
| rivals      | MPI, Horovod and MultiWorkerMirroredStrategy, as subjects.                       |
| report      | Rows as a table for people and as JSON; plot: as a picture; progress: meanwhile. |

Nothing here but `cli` imports tfhvd's operations, so that other packages can be measured by the
same code in an environment of their own (tests/perf/horovod_job.py).
"""
