"""The hang detector: takes snapshots of ranks from outside, and names the cause of a hang."""
