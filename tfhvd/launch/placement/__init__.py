"""A job -> on which hosts it runs, how they are reached, what its ranks inherit."""
