"""The launcher's event loop, and the parts that it drives."""
