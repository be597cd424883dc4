"""Facts of Linux: processes, control groups, signals. Imports the standard library alone."""
