"""What the launcher, its agents, ranks and tools say to each other."""
