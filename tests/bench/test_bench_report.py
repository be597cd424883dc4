"""Rows as a table and as a picture, and how far a run has come."""

from __future__ import annotations

import io

import pytest
from matplotlib.colors import to_hex

from tfhvd.bench import plot, report
from tfhvd.bench.metrics import Times
from tfhvd.bench.progress import Progress
from tfhvd.bench.report import COLLECTIVE, GRADIENTS, TRAINING, Row, carried, lines


def times(median: float) -> Times:
    return Times(100, median / 2, median, median * 2, median / 10, 1.5)


def collective(subject: str, median: float, size: int = 4_000_000) -> Row:
    return carried(COLLECTIVE, "allgather", subject, size, 1, times(median), ranks=4)


def test_json_is_plain():
    row = collective("tfhvd", 0.002).to_json()
    assert row == {
        "kind": "collective",
        "workload": "allgather",
        "subject": "tfhvd",
        "bytes": 4_000_000,
        "tensors": 1,
        "repetitions": 100,
        "min_us": pytest.approx(1000),
        "p50_us": pytest.approx(2000),
        "p99_us": pytest.approx(4000),
        "processor_us": pytest.approx(200),
        "switches": 1.5,
        "algbw_GBps": pytest.approx(2.0),
        "busbw_GBps": pytest.approx(1.5),
        "images_per_second": None,
    }


def test_gradients_are_allreduced():
    row = carried(GRADIENTS, "bert", "tfhvd", 4_000_000, 199, times(0.002), ranks=2)
    assert row.algbw == row.busbw == pytest.approx(2.0)


def test_a_table_compares_with_ours():
    identity = Row(COLLECTIVE, "allgather", "tf.identity", 4_000_000, 1, times(0.0001))
    rows = [identity, collective("tfhvd", 0.0021), collective("MPI", 0.0042)]
    head = report.header(COLLECTIVE).split("  ")
    assert [name.strip() for name in head if name.strip()] == [
        "workload", "bytes", "tensors", "subject", "runs", "min", "p50", "p99", "above TF", "CPU",
        "switches", "algbw", "busbw", "p50/ours",
    ]  # fmt: skip
    of_identity, ours, mpi = [[c.strip() for c in text.split("  ") if c] for text in lines(rows)]
    assert of_identity[-7:] == ["200 us", "-", "10.0 us", "1.5", "-", "-", "0.0476"]
    assert ours[-10:-5] == ["100", "1.05 ms", "2.10 ms", "4.20 ms", "2.00 ms"]
    assert ours[-5:] == ["210 us", "1.5", "1.9", "1.43", "1"]
    # MPI's calls are not TensorFlow's.
    assert mpi[-6:] == ["-", "420 us", "1.5", "0.952", "0.714", "2"]


def test_a_table_of_training_compares_with_alone():
    rows = [
        Row(TRAINING, "fit", name, 10, 8, times(t), images_per_second=128 / t)
        for name, t in (("alone", 0.080), ("tfhvd", 0.100))
    ]
    alone, together = [[c.strip() for c in text.split("  ") if c] for text in lines(rows)]
    assert alone[-3:] == ["1600", "-", "-"]
    assert together[-3:] == ["1280", "80%", "20.0 ms"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000009, "0.90 us"),
        (0.0000123, "12.3 us"),
        (0.000999, "999 us"),
        (0.0009996, "1.00 ms"),
        (0.0456, "45.6 ms"),
        (2, "2.00 s"),
        (-0.0012, "-1.20 ms"),
    ],
)
def test_times_for_people(seconds, text):
    assert report.format_seconds(seconds) == text


def test_a_picture_is_drawn(tmp_path):
    path = tmp_path / "out.png"
    rows = [collective("tfhvd", 0.001 * size, size) for size in (4, 1024)]
    rows.append(carried(GRADIENTS, "tiny", "tfhvd", 10_000, 8, times(0.1), ranks=2))
    rows.append(Row(TRAINING, "fit of tiny", "alone", 10, 8, times(0.1), images_per_second=640))
    plot.draw(rows, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert plot.missing() == ""


def test_a_subject_has_one_colour_in_all_panels_and_the_legend_names_it():
    rows = [
        collective(subject, 0.001 * size, size)
        for subject in ("tf.identity", "tfhvd", "horovod")
        for size in (4, 1024)
    ]
    for subject in ("tfhvd", "horovod"):
        rows.append(carried(GRADIENTS, "tiny", subject, 10_000, 8, times(0.1), ranks=2))
    rows.append(Row(TRAINING, "tiny", "tfhvd", 10, 8, times(0.1), images_per_second=640))
    figure = plot.figure_of(rows)
    (legend,) = figure.legends
    named = {
        text.get_text(): to_hex(patch.get_facecolor())
        for text, patch in zip(legend.get_texts(), legend.get_patches())
    }
    assert list(named) == ["tf.identity", "tfhvd", "horovod"]
    assert len(set(named.values())) == 3
    drawn = []
    for panel in figure.axes:
        drawn += [(line.get_label(), to_hex(line.get_color())) for line in panel.lines]
        labels = [label.get_text() for label in panel.get_yticklabels()]
        drawn += [(s, to_hex(bar.get_facecolor())) for s, bar in zip(labels, panel.patches)]
    assert len(drawn) == 2 * 3 + 2 + 1  # two panels of curves, and bars
    assert {subject for subject, _ in drawn} == set(named)
    assert all(named[subject] == colour for subject, colour in drawn)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere():
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file, None):
        progress = Progress(2, stream)
        progress.begin("this")
        progress.begin("that")
        progress.clear()
    assert file.getvalue() == "tfhvd.bench: 1/2 this\ntfhvd.bench: 2/2 that\n"
    assert "] 0/2 this" in terminal.getvalue() and "#" * 15 + "." * 15 in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\033[K") and "\n" not in terminal.getvalue()
