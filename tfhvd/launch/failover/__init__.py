"""The takeover from a launcher that is killed, or whose host fails."""
