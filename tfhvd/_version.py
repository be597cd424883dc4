"""The version of tfhvd."""

__version__ = "0.1.0"
