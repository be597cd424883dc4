"""Reducing lists of gradients: what the optimizers and the tape have in common."""
