"""Whether the ranks of a `fit` are equal: their weights, their data, their updates."""
