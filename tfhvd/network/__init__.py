"""Connections between the processes of a job: addresses, tokens, handshakes, TLS."""
