"""`fit`, `evaluate` and `predict` of several ranks: what tfhvd adds to Keras' methods."""
