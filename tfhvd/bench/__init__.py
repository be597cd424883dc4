"""``python -m tfhvd.bench``: times collectives of tfhvd, and of the packages that could replace it.

    tfhvdrun -np 2 python -m tfhvd.bench --help

| module      | in one sentence                                                                  |
|-------------|----------------------------------------------------------------------------------|
| cli         | The program: measures each workload in turn, and reports on rank 0.              |
| options     | Arguments -> Options, with one clear line for each mistake.                      |
| workloads   | The workloads: sizes, and the gradients of real models.                          |
| metrics     | Times and bandwidths from seconds: pure functions.                               |
| collectives | Each collective as a call, with the bytes that it counts and its correct result. |
| measure     | Runs several subjects in turn, in step with the other ranks.                     |
| subjects    | The subjects of a workload: collectives of a package, and TensorFlow's share.    |
| training    | Throughput of `model.fit`, alone and together.                                   |
| rivals      | MPI, Horovod and MultiWorkerMirroredStrategy, as subjects.                       |
| report      | Rows as a table for people and as JSON; plot: as a picture; progress: meanwhile. |

Only `cli` imports tfhvd's operations. So the other modules can also measure another package, in an
environment without tfhvd's operations (tests/perf/horovod_job.py).
"""
