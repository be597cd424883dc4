"""The launcher ``tfhvdrun``: starts N copies of a command under mpirun and watches over them.

Reading order: ``cli`` (start here), ``arguments`` and ``hosts`` (words -> Job), ``mpi`` and
``command_line`` (Job -> mpirun line), ``environment`` (what the ranks inherit), ``supervisor``
(the event loop), ``worker`` (the small process around each rank), ``wire`` (what the two say to
each other), ``address`` (where they meet), ``lines`` and ``output`` (many outputs, one terminal),
``ending`` (who failed first), ``stopping`` and ``orphans`` (nothing is left behind).

Nothing here imports TensorFlow, MPI or any other package, so that the launcher starts at once.
"""
