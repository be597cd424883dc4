"""`fit` in elastic jobs: when ranks are admitted, and what a joining rank does."""
