"""`tfhvd.run`: a job whose ranks call a function; also for Ray, Dask and Spark."""
