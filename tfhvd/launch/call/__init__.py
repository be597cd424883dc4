"""`tfhvd.run`: a job whose ranks (`task`) call a function that they get through `exchange`."""
