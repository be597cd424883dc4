"""Who failed first, what to say of it, and the steps that end a job."""

from __future__ import annotations

import signal

import pytest

from tfhvd.launch.state import shutdown_plan
from tfhvd.launch.state.rank_state import Ending, Rank, first_failure, last_lines_of, report
from tfhvd.protocol import messages

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1\nValueError: bad\n'


def ended(rank: int, ending: Ending, at: float, stopped_at: float | None = None, said: str = ""):
    who = Rank(rank, f"n{rank}")
    if said:
        who.hear(said, at - 1.0)
    who.end(ending, at, stopped_at)
    return who


def test_exit_codes_are_a_shells():
    assert Ending(code=3).exit_code == 3
    assert Ending(signal=9).exit_code == 137
    assert Ending(error="cannot start 'x'").exit_code == 127
    assert Ending(lost=True).exit_code == 1
    assert not Ending(code=0).failed and Ending(signal=15).failed
    assert Ending(code=0, silent=True).failed and Ending(code=0, silent=True).exit_code == 1


def test_the_earliest_failure_counts():
    ranks = [
        ended(0, Ending(code=0), 1.0),
        ended(1, Ending(code=1), 3.0),
        ended(2, Ending(code=4), 2.0),
    ]
    assert first_failure(ranks).rank == 2
    assert first_failure(ranks[:1]) is None


def test_who_is_stopped_afterwards_did_not_fail_first():
    ranks = [ended(0, Ending(signal=15), 2.9, 3.0), ended(1, Ending(code=1), 5.0, 3.0)]
    assert first_failure(ranks, 3.0).rank == 0, "killed before anything was stopped"
    ranks = [ended(0, Ending(signal=15), 3.1, 3.0), ended(1, Ending(code=1), 5.0, 3.0)]
    assert first_failure(ranks, 3.0).rank == 1


def test_an_exception_counts_from_its_traceback_not_from_the_exit():
    slow = Rank(1, "n1")
    slow.hear(TRACEBACK, 1.0)
    slow.end(Ending(code=1), 4.0)
    quick = ended(0, Ending(code=1), 3.0)
    assert first_failure([quick, slow]) is slow
    handled_long_ago = Rank(2, "n2")
    handled_long_ago.hear(TRACEBACK, 1.0)
    handled_long_ago.end(Ending(code=1), 500.0)
    other = ended(3, Ending(code=1), 499.0)
    assert first_failure([handled_long_ago, other]) is other


def test_who_raised_and_hung_on_the_way_out_failed_with_code_1():
    stuck = ended(1, Ending(signal=9), 9.0, 8.0, said=TRACEBACK)
    assert stuck.ending == Ending(code=1)


def test_what_mpirun_took_down_comes_last():
    ranks = [
        ended(0, Ending(lost=True), 1.0),
        ended(1, Ending(signal=15, told=True), 1.1),
        ended(2, Ending(code=5), 1.2),
    ]
    assert first_failure(ranks).rank == 2
    assert first_failure([ended(0, Ending(lost=True), 1), ranks[1]]) is not None


def test_who_fails_because_of_another_did_not_fail_first():
    follower = Rank(0, "n0")
    follower.hear(TRACEBACK, 1.0)
    follower.leave(1.1, follows=True)
    follower.end(Ending(code=1), 1.2)
    slow = Rank(1, "n1")
    slow.leave(1.5, follows=False)  # heard late, as of a busy host
    slow.end(Ending(code=3), 4.0)
    assert first_failure([follower, slow]) is slow
    killed = ended(1, Ending(signal=9), 2.0)
    assert first_failure([follower, killed]) is killed
    lost = ended(1, Ending(lost=True), 30.0, 3.0)
    assert first_failure([follower, lost], 3.0) is lost
    left_early = ended(1, Ending(code=0), 0.5)
    bystander = ended(2, Ending(signal=15), 3.1, 3.0)
    assert first_failure([follower, left_early, bystander], 3.0) is follower


def test_a_rank_fails_when_it_begins_to_leave_whatever_it_printed_before():
    first, second = Rank(0, "n0"), Rank(1, "n1")
    second.hear(TRACEBACK, 1.0)  # of an exception that it handled
    first.leave(2.0, follows=False)
    second.leave(3.0, follows=False)
    for rank in (first, second):
        rank.end(Ending(code=4), 5.0)
    assert first_failure([second, first]) is first


def test_who_was_stopped_failed_first():
    waited = ended(0, Ending(code=1), 2.0, said=TRACEBACK)
    stopped = ended(1, Ending(signal=9, stopped=True), 9.0, 8.0, said=TRACEBACK)
    assert first_failure([waited, stopped], 8.0) is stopped
    assert stopped.ending.exit_code == 137
    assert report(stopped)[0].endswith("stopped (SIGSTOP), and killed because it did not continue")


def test_last_lines_of_are_the_end_of_stderr():
    assert last_lines_of([]) == []
    assert last_lines_of([str(n) for n in range(50)]) == [str(n) for n in range(40, 50)]


def test_last_lines_of_hold_the_exception_whatever_follows_it():
    frames = [f"  frame {n}" for n in range(30)]
    lines = ["Traceback (most recent call last):", *frames, "ValueError: bad"]
    for noise in (0, 1, 5, 100):
        words = last_lines_of([*lines, *["noise"] * noise])
        assert "ValueError: bad" in words and "  frame 29" in words and len(words) == 10


def test_last_lines_of_hold_the_exception_behind_carets_that_are_not_indented():
    frames = [line for n in range(9) for line in (f'  File "m{n}.py"', f"    f({n})", "^^^^^~~^^^")]
    words = last_lines_of(["Traceback (most recent call last):", *frames, "ValueError: bad"])
    assert words[-1] == "ValueError: bad" and len(words) == 10


def test_last_lines_of_leave_out_the_stack_that_tensorflow_quotes():
    quoted = [f'  File "m{n}.py", line {n}, in f' for n in range(40)]
    words = [
        "Traceback (most recent call last):",
        '  File "t.py", line 1, in <module>',
        "AbortedError: Graph execution error:",
        "Detected at node X defined at (most recent call last):",
        *quoted,
        "allreduce 'x' cannot be completed: rank 1 (host n1) has left the job",
        "\t [[{{node X}}]]",
    ]
    assert last_lines_of(words) == [*words[:4], *words[-2:]]


def test_who_had_ended_before_a_failure_is_named():
    ranks = [ended(0, Ending(code=1), 5.0), *(ended(n, Ending(code=0), 1.0 * n) for n in (1, 2))]
    late = ended(3, Ending(code=0), 6.0)
    assert report(ranks[0], [*ranks, late])[1] == (
        "tfhvdrun: ranks 1-2 had already ended with exit code 0"
    )


STARTUP = """\
2026-01-31 12:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795358245.586896   11651 cpu_feature_guard.cc:227] This TensorFlow binary is optimized
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the ap
E0000 00:00:1795358320.548069   12439 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA er
2026-01-31 12:00:00.1: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:467] Unable to reg\
ister cuFFT factory: Attempting
W0000 00:00:1795358320.548069   12439 gpu_device.cc:2344] Cannot dlopen some GPU libraries. Please
Skipping registering GPU devices...
"""


def test_last_lines_of_leave_out_what_tensorflow_says_at_its_start():
    words = [
        "W0000 00:00:1795358320.548069   12439 gpu_device.cc:99] Out of memory",
        "E0000 00:00:1795358320.548069   12439 cuda_driver.cc:52] CUDA_ERROR_ILLEGAL_ADDRESS",
        "2026-01-31 12:00:00.1: F tensorflow/core/framework/tensor.cc:1] Check failed",
        "[tfhvd rank 0 on a, 2026-01-31T12:00:00.123Z] warning: some ranks wait for others",
        "Illegal instruction",
    ]
    assert last_lines_of([*STARTUP.splitlines(), *words]) == words
    quiet = ended(0, Ending(code=3), 1.0, said=STARTUP)
    assert report(quiet)[1:] == [
        "tfhvdrun: it wrote nothing to stderr except TensorFlow's startup lines"
    ]


def test_stderr_is_kept_as_lines_also_in_pieces():
    rank = Rank(0, "n0")
    for piece in ("a", "b\n\nbar 1\rbar 2\n", "end"):
        rank.hear(piece, 0.0)
    rank.end(Ending(code=1), 0.0)
    assert list(rank.last_lines) == ["ab", "bar 2", "end"]


def test_the_report_of_a_rank_that_is_gone():
    assert report(ended(1, Ending(lost=True), 2.0))[0] == (
        "tfhvdrun: rank 1 on host n1 failed first: lost without a message: its host, its network "
        "or its agent failed"
    )


def test_the_report():
    assert report(ended(1, Ending(code=1), 2.0, said=TRACEBACK)) == [
        "tfhvdrun: rank 1 on host n1 failed first: exit code 1",
        "tfhvdrun: its last lines:",
        "    Traceback (most recent call last):",
        '      File "t.py", line 1',
        "    ValueError: bad",
    ]
    killed = report(ended(3, Ending(signal=9), 2.0))
    assert killed[0].startswith("tfhvdrun: rank 3 on host n3 failed first: killed by SIGKILL")
    assert killed[1:] == ["tfhvdrun: it wrote nothing to stderr"]


def test_the_report_says_what_a_rank_was_doing_unless_a_traceback_does():
    doing = "It had waited for rank 2 with allreduce 'loss' for 3.0 s."
    killed = report(ended(1, Ending(signal=9, doing=doing, out_of_memory=True), 2.0))
    assert killed[:2] == [
        "tfhvdrun: rank 1 on host n1 failed first: killed by SIGKILL (by the kernel, because its "
        "control group has run out of memory)",
        "tfhvdrun: it had waited for rank 2 with allreduce 'loss' for 3.0 s.",
    ]
    raised = report(ended(1, Ending(code=1, doing=doing), 2.0, said=TRACEBACK))
    assert not any("waited" in line for line in raised)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_job_is_asked_then_killed(first):
    steps = shutdown_plan.plan(100.0, first, timeout=5.0, grace=3.0)
    ranks = [step for step in steps if step.target == "ranks"]
    assert ranks[0] == shutdown_plan.Step(103.0, "ranks", first)
    assert ranks[-1] == shutdown_plan.Step(108.0, "ranks", signal.SIGKILL)
    assert signal.SIGTERM in [step.signal for step in ranks]
    assert all(step.at > 108.0 for step in steps if step.target == "mpirun")


def test_steps_are_taken_once():
    steps = shutdown_plan.plan(0.0, signal.SIGTERM, timeout=5.0)
    assert [step.signal for step in shutdown_plan.take_due(steps, 1.0)] == [signal.SIGTERM]
    assert shutdown_plan.take_due(steps, 1.0) == []
    assert [step.signal for step in shutdown_plan.take_due(steps, 5.0)] == [signal.SIGKILL]


def test_frames_survive_any_cutting():
    frames = [
        (messages.FrameKind.OUTPUT, b"x" * 300),
        (messages.FrameKind.QUIT, b""),
        (messages.FrameKind.ERRORS, b"\x00\n"),
    ]
    stream = b"".join(messages.frame(*frame) for frame in frames)
    for size in (1, 2, 7, 1000):
        reader, got = messages.Reader(), []
        for at in range(0, len(stream), size):
            got += reader.feed(stream[at : at + size])
        assert got == frames


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b"O\xff\xff\xff\xff"])
def test_what_is_no_frame_is_refused(junk):
    with pytest.raises(messages.WireError):
        messages.Reader().feed(junk)
    with pytest.raises(messages.WireError):
        messages.read_json(b"[1]")
