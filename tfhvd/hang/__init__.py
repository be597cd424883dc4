"""The hang detector: what can be seen of ranks from outside, and what it means."""
