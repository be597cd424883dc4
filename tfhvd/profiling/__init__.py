"""Where the time of training steps goes: what is measured, and what follows from it."""
