"""Facts of Linux: processes, control groups, signals. The standard library alone."""
