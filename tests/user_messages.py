"""What a person reads when something is wrong: the words of messages, in one table.

A message has a program here, which tests/launch/test_user_messages.py runs; or it names the test
that makes it and compares the words:

    user_messages.check("a gradient is missing", str(raised.value))
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """A message, and what makes it.

    Attributes:
        says: its lines; `...` is any text within a line. Of a program, all that it says on stderr.
        made_by: the test that makes it and calls `check`, below tests/; "" if a job here does.
        program: of the job's ranks.
        options: of tfhvdrun.
        env: settings of the job.
        code: the exit code of tfhvdrun.
        symptom: the heading of docs/troubleshooting.md that is about it; "" for none.
    """

    says: str
    made_by: str = ""
    program: str = ""
    options: str = "-np 2"
    env: dict[str, str] = field(default_factory=dict)
    code: int = 0
    symptom: str = ""

    def pattern(self) -> str:
        """A regular expression of its lines, in which a rank's number may stand before each."""
        lines = [re.escape(line).replace(r"\.\.\.", ".*") for line in self.says.splitlines()]
        return "\n".join(rf"(?:\[\d+\] )?{line}" for line in lines)


_DIED = (
    "[tfhvd rank 0 on ..., ...] error: rank 1 (process ... on host ...) has died. Its own output, "
    "or dmesg, may say why."
)
_ONE_LOSS = (
    "Compute the same loss on every rank, and multiply by 0.0 a part of it that does not count; or "
    "pass unconnected_gradients=tf.UnconnectedGradients.ZERO for missing gradients, "
    "sparse_as_dense=True for tf.IndexedSlices."
)

MESSAGES = {
    "a rank ends without a goodbye": Message(
        f"{_DIED}\n"
        "tfhvdrun: rank 1 on host ... failed first: exit code 0 without hvd.shutdown()\n"
        "tfhvdrun: its process ended early, by os._exit or in a library, and the others would have "
        "waited for it: let the program reach its end, or call hvd.shutdown()\n"
        "tfhvdrun: it was in no collective: its only one had ended ... s before: "
        "add_process_set 'tfhvd.process_sets' (0 B).\n"
        "tfhvdrun: it wrote nothing to stderr\n",
        program="""
import tfhvd as hvd
hvd.init()
hvd.add_process_set([1])
if hvd.rank() == 1:
    os._exit(0)
""",
        code=1,
        symptom="`without hvd.shutdown()`",
    ),
    "a rank ends without a goodbye, under mpirun": Message(_DIED, "fault/test_leaving.py"),
    "a gradient is missing": Message(
        "Mismatched shapes in allreduce 'DistributedGradientTape/2.c'. Received: "
        "rank 0: tensor 0 of the group, float32[4, 3]; rank 1: no gradient of some variable. "
        f"Expected: the same on every rank. On this rank there is no gradient of c. {_ONE_LOSS}",
        "ops/test_different_gradients.py",
    ),
    "a gradient has rows": Message(
        "Mismatched numbers of tensors in the group in allreduce 'DistributedGradientTape/2.c'. "
        "Received: rank 0: 4; rank 1: 3. Expected: the same on every rank. "
        f"On this rank there are tf.IndexedSlices for b. {_ONE_LOSS}",
        "ops/test_different_gradients.py",
    ),
    "a rank is slow": Message(
        "tfhvdrun: rank 1 is slow: rank 0 has waited for it for 85% of the last 21 s "
        "(after 1,312 steps). To see where it is, type: tfhvd why",
        "launch/test_watches.py",
    ),
    "a rank is slow, in `tfhvd why`": Message(
        "The ranks have done 20 collectives in 2.0 s, but rank 1 is slow: rank 0 has waited for it "
        "for 83% of the last 5 s.\n"
        "Rank 1 (host n1, process 101) is at /home/ann/train.py:9 in <module>.\n"
        "hvd.profile says which part of its steps takes longer; tfhvd doctor, whether something "
        "else runs on its host.",
        "hang/test_delays.py",
    ),
    "one of several jobs": Message(
        "Job .../train.py (process ..., user ..., since ...-...-... ...:...:...):",
        "tools/test_job_names.py",
    ),
    "a rank fails because of another one": Message(
        "tfhvd: this rank ends because of another one: add_process_set 'tfhvd.process_sets' "
        "cannot be completed: rank 1 (host ...) has left the job: ValueError: bad luck",
        "launch/test_launch_killed.py",
    ),
    "a call before hvd.init()": Message(
        "tfhvd: .../script.py, line 5: tfhvd has not been initialized. Call hvd.init() first.",
        "launch/test_launch_killed.py",
    ),
    "models with different layers": Message(
        "The ranks have built different models: the first variable that differs is "
        "'...wide/kernel' here. Received: rank 0: float32[4, 4]; rank 1: float32[4, 5]. "
        "Expected: the same on every rank. Build the same model on every rank.",
        "keras/test_other_models.py",
    ),
    "models with more layers": Message(
        "broadcast_variables: the ranks have different numbers of variables. Received: rank 0: 1; "
        "rank 1: 2. Expected: as many on every rank; build the same model, and make the "
        "optimizer's variables, on each.",
        "ops/test_broadcast_variables.py",
    ),
    "a package that a callback needs": Message(
        "TensorBoard needs the package tensorboard, which is not installed. Type: pip install "
        "tensorboard",
        "keras/test_first_rank_callbacks.py",
    ),
    "another version of tfhvd": Message(
        "tfhvd differs: 1.2 on ranks 0-2 (hosts a, b); 1.1 on rank 3 (host b)\n"
        "pip install tfhvd-1.2-*.whl, from the source of the others, for rank 3 (host b)",
        "tools/test_doctor_checks.py",
    ),
    "a comma without a host": Message(
        "tfhvdrun: error: -H has a comma without a host next to it. Received: 'localhost:1,'. "
        "Expected: host[:slots],..., for example -H node1:4,joe@node2:4,[fd00::3]:4\n",
        options="-H localhost:1,",
        program="print()",
        code=2,
    ),
    "a misspelt setting of Horovod": Message(
        "[tfhvd rank 0 on ..., ...] warning: HOROVOD_FUSION_TRESHOLD is not a setting of tfhvd and "
        "has no effect. Did you mean HOROVOD_FUSION_THRESHOLD?\n",
        program="import tfhvd as hvd; hvd.init()",
        env={"HOROVOD_FUSION_TRESHOLD": "1"},
        symptom="`is not a setting of tfhvd`",
    ),
    "a callback before MetricAverageCallback": Message(
        "fit moves CSVLogger behind MetricAverageCallback: in front of it, a callback sees the "
        "metrics of one rank only. Place MetricAverageCallback first.",
        "keras/test_first_rank_callbacks.py",
    ),
    "a busy host": Message(
        "host b: load 8.1 on 8 cores: something else keeps them busy, and the slowest rank sets "
        "the pace\n"
        "wait for it, end it, or take other hosts. To see what it is, type: ssh b top",
        "tools/test_doctor_checks.py",
    ),
    "little room": Message(
        "host b: 0.5 GiB of 900.0 GiB are free in /home/ann, for checkpoints and logs\n"
        "delete files, or write elsewhere. To see the free room, type: df -h /home/ann",
        "tools/test_doctor_checks.py",
    ),
    "import horovod.ray": Message(
        "ImportError: tfhvd, which takes the place of Horovod here, has no horovod.ray. Use: "
        "tfhvd.ray.run(func, num_workers=N), which takes the place of its executors.",
        "test_as_horovod.py",
    ),
    "import horovod.spark": Message(
        "ImportError: tfhvd, which takes the place of Horovod here, has no horovod.spark. Use: "
        "tfhvd.spark.run(fn, num_proc=N), which takes the place of horovod.spark.run; its "
        "estimators and run_elastic are in Horovod alone.",
        "test_as_horovod.py",
    ),
    "no memory for a result": Message(
        "...allgather 'big' has failed on every rank: rank ... cannot get the ... bytes of memory "
        "that it takes there. Give it less data at once, or the process more memory. [Op:...] "
        "name: ",
        "ops/test_no_memory.py",
    ),
}


def check(name: str, *printed: str) -> None:
    """Fails unless a message was printed.

    Args:
        name: in the table.
        printed: one text, or the lines of one.
    """
    text = "\n".join(printed)
    assert re.search(f"^{MESSAGES[name].pattern()}$", text, re.M), text
