"""Who takes over from a launcher that is killed, or whose host is lost."""
