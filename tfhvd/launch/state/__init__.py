"""The rules of a job as plain values: no processes, no sockets."""
