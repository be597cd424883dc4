"""The causes of a hang, as classes of verdicts, with advice for each."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """The cause of a hang."""

    PROGRESS = "the job makes progress"
    MEETING = "ranks wait for others in hvd.init()"
    STOPPED = "a rank is stopped"
    DEAD = "a rank has ended"
    FINISHED = "a rank has reached the end of its program"
    RAISED = "a rank has raised an exception"
    DIFFERENT = "ranks call different collectives, or in a different order"
    ORDER = "ranks call the same collectives in a different order"
    COMPILING = "a rank compiles"
    INPUT = "a rank waits for its input"
    EVALUATING = "a rank evaluates"
    COMPUTING = "a rank computes"
    WAITS = "a rank waits in its program"
    HELD = "a rank is held in C code"
    NETWORK = "ranks wait for data of each other"
    ELSEWHERE = "a rank that cannot be seen from here has not come"
    LEFT = "ranks have left the job, and their processes have not ended"
    UNKNOWN = "unknown"


# With {pid} and {host} of the rank that the verdict names.
ADVICE = {
    Kind.STOPPED: "Type `kill -CONT {pid}` on host {host} to let it continue, or end it.",
    Kind.DEAD: "Its own output, or dmesg on its host, may say why.",
    Kind.FINISHED: "It had fewer batches or epochs, or left a loop early. Give every rank as many "
    "steps, or end loops with hvd.join().",
    Kind.RAISED: "Its traceback is in its output, or comes there once what the program had "
    "is freed: for that TensorFlow waits for the threads and generators of a dataset.",
    Kind.DIFFERENT: "Every rank must call the same collectives, and eager ones in the same order: "
    "look for conditions that depend on the rank, and for loops over sets.",
    Kind.ORDER: "Every rank must call eager collectives in the same order: look for loops over "
    "sets, dictionaries or lists of files, and for threads that call some.",
    Kind.COMPILING: "The others wait until it has finished: the first step may take minutes. A "
    "function that is compiled again and again gets inputs of other shapes or Python values.",
    Kind.INPUT: "Look at what its dataset reads: another file, a slow disk, a shard without "
    "elements, or a generator that waits.",
    Kind.EVALUATING: "If only this rank evaluates, the others wait until it has finished. Have all "
    "ranks evaluate their part: hvd.shard, and a callback that averages metrics.",
    Kind.COMPUTING: "It has more to compute, or does it more slowly: compare batch sizes, and what "
    "else runs on its host.",
    Kind.WAITS: "The line above sleeps, or waits for a lock, a thread, a queue, a file or another "
    "process: look at what should have ended that. `tfhvd dump --stacks` shows its other threads.",
    Kind.HELD: "A library that the line above has called does not come back: a lock, a device or a "
    "network. `tfhvd dump --stacks` shows by which function.",
    Kind.NETWORK: "The network between the hosts is cut, or slow for what is sent.",
    Kind.LEFT: "The processes end once the iterators of tf.data that the program had are freed: "
    "for that TensorFlow waits for the functions and generators of a dataset.",
    Kind.ELSEWHERE: "Type `tfhvd why` on the other hosts.",
}
