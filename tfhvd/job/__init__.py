"""This process in its job: `init`, `shutdown`, its rank, and the threads that `init` starts."""
