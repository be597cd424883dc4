"""Tools that say what a job does, and why it does not: the command ``tfhvd``."""
