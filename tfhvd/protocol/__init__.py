"""The messages between the launcher, its agents, ranks and tools."""
