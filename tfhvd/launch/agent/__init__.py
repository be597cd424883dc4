"""The agent, a small process around each rank; and spawn.py, which starts agents without an MPI."""
