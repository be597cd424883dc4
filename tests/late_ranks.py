"""A program one of whose ranks calls `init` late, and what another one says of it."""

PROGRAM = """
import os, time
import tfhvd as hvd
from tfhvd.protocol.variables import rank_of
if rank_of(os.environ) == 1:
    time.sleep(float(os.environ["LATE_BY"]))
hvd.init()
print("met", flush=True)
"""
SAID = (
    r"tfhvd rank 0: hvd.init\(\) has waited 1 s for other ranks. On this host rank 1 has not "
    r"called it. It \(process \d+\) waits for something."
)
