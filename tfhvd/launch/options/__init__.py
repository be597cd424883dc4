"""The arguments of the command line -> `state.job_spec.Job`."""
