"""The launcher ``tfhvdrun``: starts N copies of a command, and watches over them.

Reading order: ``cli`` (start here), ``arguments``, ``options``, ``parser``, ``values``,
``horovod_options``, ``config_file``, ``hosts`` and ``slurm`` (words -> ``job``), ``mpi`` and
``command_line`` (Job -> mpirun line), ``environment`` and ``legacy_keras`` (what the ranks
inherit), ``ssh_check`` (whether their hosts can be reached), ``supervisor`` (the event loop),
``orders`` (what it is to do), ``keeper`` and ``succession`` (where it is killed, another one takes
its place), ``majority``, ``claim``, ``wills``, ``heirs`` and ``heir`` (on another host, where its
own is lost), ``rounds`` (what it looks for from time to time), ``process_manager`` and ``peer``
(mpirun, and a rank's worker, as we see them), ``spawn`` (what starts the ranks where there is no
MPI), ``endpoints`` and ``members`` (how they then find each other, and who is left), ``looks``,
``inquiry`` and ``host_answers`` (what is seen of them), ``worker`` (the small process around each
rank), ``halts`` (whether it is stopped) and ``reach`` (how the worker reaches us), ``rank`` (which
one it is), ``cores`` (its share of them), ``wire`` (what the two say to each other), ``notice``
(what a rank says as it leaves), ``address`` (where they meet), ``lines`` and ``output`` (many
outputs, one terminal), ``ending`` and ``startup_lines`` (who failed first, and its last lines),
``conclusion`` (what is said at the end), ``signals``, ``stopping`` and ``orphans`` (nothing is left
behind).

``call`` is ``tfhvd.run``: a job whose ranks call a function.

Nothing here imports TensorFlow or MPI, nor the launcher itself any other package, so that it starts
at once.
"""
