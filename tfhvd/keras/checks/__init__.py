"""Checks of `fit`: equal weights on all ranks, unequal data, and updates from reduced gradients."""
