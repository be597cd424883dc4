"""Programs in the style of TensorFlow 1: graphs, sessions, and their optimizers."""
