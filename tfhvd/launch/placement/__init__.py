"""A job -> its hosts, the commands that reach them, and the environment of its ranks."""
