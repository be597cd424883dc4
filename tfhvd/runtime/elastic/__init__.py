"""Elastic jobs: a joining rank replays the collectives of the others, and warms up."""
