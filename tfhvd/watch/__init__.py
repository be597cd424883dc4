"""What can be seen of a rank from outside, and what it means. The standard library alone."""
