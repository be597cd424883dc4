"""The launcher ``tfhvdrun``: starts N copies of a command, and supervises them.

Start with ``cli``: it reads the command line, places the ranks and hands them to a supervisor.

| folder | what it does |
|---|---|
| ``options`` | arguments of the command line -> ``state.job_spec.Job`` |
| ``placement`` | hosts and slots; the command line of mpirun; the environment of the ranks |
| ``state`` | rules as plain values: hosts, roster, quorum, how ranks end |
| ``stdio`` | the output of many ranks on one terminal, and in files |
| ``supervisor`` | the event loop: mpirun, a connection to each agent, signals, time |
| ``agent`` | the small process around each rank |
| ``failover`` | the takeover if the launcher or its host fails |
| ``run`` | ``tfhvd.run``: a job whose ranks call a function |
| ``standby_main`` | the supervisor that takes over on another host |

Nothing here imports TensorFlow or MPI, so that it starts at once.
"""
