"""Data of a job: each rank's part of them."""
