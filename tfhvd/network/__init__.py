"""Connections between the processes of a job: addresses, tokens, TLS, who is let in."""
