"""What setup.py needs to build tfhvd's native libraries. Not part of the installed package.

Reading order: `find` (what the machine has), `products` (which sources make which library),
`compiler` (compiles and links them, in parallel and only where something changed).
"""
