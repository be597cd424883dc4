"""This process in its job: `init`, `shutdown`, its rank, and what they set up."""
