"""Profiles of training steps: the measurements, and the report that follows from them."""
