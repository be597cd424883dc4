"""Wrappers of a Keras optimizer or model: hooks, state, learning rates."""
