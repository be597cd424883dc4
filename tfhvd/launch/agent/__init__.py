"""The small process around each rank, and what starts the ranks without an MPI."""
