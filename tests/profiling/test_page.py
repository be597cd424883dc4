"""The page of a report: its numbers are the report's, and no name does harm."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from made_up import job
from profile_pages import data_of

from tfhvd.profiling import page, page_data, report
from tfhvd.profiling.breakdown import PARTS
from tfhvd.profiling.intervals import Span
from tfhvd.profiling.trace import Sent, Trace
from tfhvd.profiling.trace_events import events_of
from tfhvd.tools.cli import main

HARMFUL = '</script><script>window.harm = 1</script><!-- <b>&"\u2028'


def headline_of(text: str) -> str:
    return re.search("<h1>(.*?)</h1>", text)[1]


def made(traces) -> tuple[report.Report, dict]:
    found = report.make(traces)
    return found, data_of(page.text(found))


@pytest.mark.parametrize("hosts", [("a",), ("a", "a"), ("a", "b"), ("a", "a", "b", "b")])
def test_the_numbers_are_those_of_the_report(hosts):
    found, data = made(job({len(hosts) - 1: 0.02}, ahead=77.0, hosts=hosts))
    assert [name for name, _ in data["parts"]] == list(PARTS)
    assert data["steps"] == 5 and data["all_ranks"] == len(hosts)
    for at, rank in enumerate(data["ranks"]):
        assert (rank["rank"], rank["host"]) == (at, hosts[at])
        assert rank["whole"] == pytest.approx(found.seconds(at, "whole"))
        assert rank["parts"] == pytest.approx([found.seconds(at, part) for part in PARTS])
        assert sum(rank["parts"]) == pytest.approx(rank["whole"])
        for other in range(len(hosts)):
            waits = sum(step.waits_for.get(other, 0.0) for step in found.steps[at]) / 5
            assert data["waits"][at][other] == pytest.approx(waits)
        for step, column in zip(found.steps[at], data["columns"][at]):
            expected = [1e6 * step.parts[part] for part in PARTS]
            assert column == pytest.approx([*expected, 1e6 * step.whole], abs=0.1)
    if len(hosts) > 1:
        slowest = max(data["ranks"], key=lambda rank: rank["keeps"])
        assert slowest["rank"] == found.straggler.rank == len(hosts) - 1
        assert slowest["keeps"] == pytest.approx(found.straggler.seconds)
        assert slowest["more"] == [["input", pytest.approx(0.02)]]


@pytest.mark.parametrize("ahead", [0.0, 1234.5])
def test_over_time_there_are_all_moments_and_collectives_on_one_clock(ahead):
    hosts = ("a", "a", "b")
    traces = job({1: 0.02}, ahead=ahead, hosts=hosts)
    found, data = made(traces)
    assert [number for number, _, _ in data["kept"]] == [0, 1, 2, 3, 4]
    assert data["names"] == ["g"]
    for rank, of_rank in enumerate(data["over_time"]):
        parts = [0.0] * len(PARTS)
        last = float("-inf")
        for begin, end, part, _ in of_rank["moments"]:
            assert last <= begin < end
            last = end
            parts[part] += 1e-6 * (end - begin) / 5
        parts[-1] = data["ranks"][rank]["parts"][-1]  # what moments leave is "other"
        assert parts == pytest.approx(data["ranks"][rank]["parts"], abs=1e-6)
        assert len(of_rank["collectives"]) == len(traces[rank].meetings)
        for at, (name, *times, who, count, tensors) in enumerate(of_rank["collectives"]):
            assert (name, who, count, tensors) == (0, 1, 4000, 3)
            assert times == sorted(times)
            ended = 1e6 * (traces[0].meetings[at].ended - traces[0].steps[0].begin)
            error = data["clock_error"] if hosts[rank] == "b" else 0.0
            assert times[3] == pytest.approx(ended, abs=error + 0.2)
    assert data["clock_error"] == pytest.approx(1e6 * found.clock_error)


def test_names_do_no_harm():
    traces = {
        rank: dataclasses.replace(
            trace,
            host=HARMFUL,
            meetings=tuple(dataclasses.replace(m, name=HARMFUL) for m in trace.meetings),
        )
        for rank, trace in job({1: 0.02}).items()
    }
    text = page.text(report.make(traces))
    assert text.count("</script>") == 2 and text.count("<script") == 2
    assert "<!--" not in text and "window.harm = 1</" not in text
    data = data_of(text)
    assert data["names"] == [HARMFUL] and data["ranks"][0]["host"] == HARMFUL


def test_nothing_of_it_comes_from_elsewhere():
    text = page.text(report.make(job()))
    assert "default-src 'none'" in text
    namespace = "http://www.w3.org/2000/svg"  # a name: nobody asks for it
    assert "://" not in text.replace(namespace, "")
    assert not re.search(r"\b(src|href)=|@import|url\(|\{\{", text)


def test_of_many_steps_columns_are_averages_and_the_longest_step_of_each_is_shown():
    late = [0.01] * 1500
    late[777] = 0.5
    found, data = made(job({1: late}, steps=1500))
    assert data["column"] == 8
    assert [len(columns) for columns in data["columns"]] == [188, 188]
    average = sum(step.parts["input"] for step in found.steps[1][776:784]) / 8
    assert data["columns"][1][97][0] == pytest.approx(1e6 * average, abs=0.1)
    assert data["columns"][1][97][-1] == pytest.approx(1e6 * 0.6, abs=0.1)
    kept = [number for number, _, _ in data["kept"]]
    assert len(kept) == 188 and 777 in kept
    assert [number // 8 for number in kept] == list(range(188))
    for of_rank in data["over_time"]:
        assert len(of_rank["collectives"]) == 188


def test_of_very_many_collectives_there_are_some_steps(monkeypatch):
    monkeypatch.setattr(page_data, "EVENTS", 100)
    late = [0.01] * 50
    late[33] = 0.5
    _, data = made(job({1: late}, steps=50))
    kept = [number for number, _, _ in data["kept"]]
    assert 33 in kept and len(kept) in (8, 9)
    events = sum(len(own) for of_rank in data["over_time"] for own in of_rank.values())
    assert events <= 100 + 2 * 6  # and those of the longest step


def test_of_many_ranks_those_are_shown_that_the_others_wait_for():
    _, data = made(job({39: 0.02}, hosts=("a",) * 40, steps=2))
    assert data["all_ranks"] == 40
    assert [rank["rank"] for rank in data["ranks"]] == [*range(31), 39]
    assert len(data["waits"]) == len(data["columns"]) == len(data["over_time"]) == 32


@pytest.mark.parametrize(
    ("traces", "said"),
    [
        (job({1: 0.05}), "Rank 1 is the slowest: the others wait 33% of a step for it."),
        (job(), "Communication that nothing hides takes 21% of a step."),
        (job(hosts=("a",)), "Communication that nothing hides takes 21% of a step."),
    ],
)
def test_the_headline(traces, said):
    found = report.make(traces)
    text = page.text(found)
    assert headline_of(text) == said
    assert f"<title>{said}</title>" in text
    told = [line for line in found.advice() if line != said]
    assert told and all(f"<p>{line}</p>" in text for line in told)


def test_the_headline_where_nothing_costs_much():
    quiet = {
        rank: dataclasses.replace(trace, meetings=()) for rank, trace in job(hosts="aa").items()
    }
    said = "No rank keeps the others: computing takes 60% of a step."
    assert headline_of(page.text(report.make(quiet))) == said
    alone = report.make({0: quiet[0]})
    assert headline_of(page.text(alone)) == "Computing takes 60% of a step."


def test_a_slow_link_is_the_headline_and_links_are_in_order():
    traces = job(hosts="abc")
    ends = {host: f"10.0.0.{ord(host)}" for host in "abc"}
    for rank, host in enumerate("abc"):
        sent = tuple(
            Sent(
                f"{ends[host]}:{ord(other)}",
                f"{ends[other]}:{ord(host)}",
                10_000_000,
                1.0 if "c" in (host, other) else 0.1,
            )
            for other in "abc"
            if other != host
        )
        traces[rank] = dataclasses.replace(traces[rank], sent=sent)
    found, data = made(traces)
    assert found.straggler.cause == "link"
    share = f"{found.straggler.share:.0%}"
    said = f"The link of host c is slow: it costs {share} of a step."
    assert headline_of(page.text(found)) == said
    assert [link["slow"] for link in data["links"]] == [True] * 4 + [False] * 2
    assert data["links"][0]["rate"] == pytest.approx(10e6)
    assert {data["links"][-1]["from"], data["links"][-1]["to"]} == {"a", "b"}


def test_a_report_without_a_step_has_a_page():
    traces = {0: Trace(0, "a", ())}
    _, data = made(traces)
    assert data["steps"] == 0 and data["kept"] == []


def test_where_the_file_cannot_be_made(tmp_path, capsys):
    file = tmp_path / "t.json"
    trace = Trace(0, "a", (Span(1, 2),))
    name = {"ph": "M", "name": "process_name", "ts": 0, "pid": 0, "tid": 0}
    args = {"name": "rank 0 on a", "start_time_since_epoch_in_micros": 0}
    times = {"pid": 1, "tid": 0}
    events = [{**name, "args": args}, {**name, "pid": 1, "args": {"name": "g"}}]
    events += [{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1.1e6, **times}]
    events += [{"ph": "E", "ts": 1.2e6, **times}, {"ph": "B", "name": "X", "ts": 1.2e6, **times}]
    events += [{"ph": "E", "ts": 1.3e6, **times}, *events_of(trace, 0)]
    file.write_text(json.dumps(events))
    assert main(["timeline", "page", str(tmp_path / "no" / "out.html"), str(file)]) == 2
    assert "out.html: No such file or directory" in capsys.readouterr().err
    out = tmp_path / "out.html"
    assert main(["timeline", "page", str(out), str(file)]) == 0
    assert capsys.readouterr().out == f"{out}: open it in a browser.\n"
    assert data_of(out.read_text())["names"] == ["g"]
