"""Elastic jobs: what a joining rank replays of the collectives of the others."""
