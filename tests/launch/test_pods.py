"""The pods of an indexed Job of Kubernetes that can be found by name."""

from __future__ import annotations

import socket
import sys

import pytest
from launching import launch

from tfhvd.launch.errors import UsageError
from tfhvd.launch.options.parse import parse
from tfhvd.launch.placement import kubernetes

NAME = "digits-2.tfhvd.default.svc.cluster.local"


def test_what_asks_for_them():
    words = kubernetes.command(4, {"JOB_COMPLETION_INDEX": "2"}, NAME)
    assert words[:3] == (sys.executable, "-m", "tfhvd.launch.placement.kubernetes")
    assert words[3:] == ("digits", "tfhvd.default.svc.cluster.local", "4")


@pytest.mark.parametrize(
    ("environ", "name", "says"),
    [
        ({}, NAME, "JOB_COMPLETION_INDEX is not set"),
        ({"JOB_COMPLETION_INDEX": "2"}, "digits-2", "Expected: JOB-2.SERVICE"),
        ({"JOB_COMPLETION_INDEX": "2"}, "digits-3.tfhvd", "Received: 'digits-3.tfhvd'"),
    ],
)
def test_elsewhere_there_are_none(environ, name, says):
    with pytest.raises(UsageError, match=says):
        kubernetes.command(4, environ, name)


def test_those_that_are_there(monkeypatch, capsys):
    monkeypatch.setattr(socket, "gethostname", lambda: "digits-2")

    def look_up(name: str, port: None) -> list[object]:
        if name == "digits-0.tfhvd.svc":
            return [()]
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert kubernetes.main(["digits", "tfhvd.svc", "4"]) == 0
    assert capsys.readouterr().out == "digits-0.tfhvd.svc\ndigits-2\n"


def test_the_job_has_up_to_their_slots():
    job = parse(["--pods", "3", "--slots-per-host", "2", "--min-np", "2", "true"])
    assert (job.max_np, job.num_proc, job.min_np, job.elastic) == (6, 6, 2, True)
    assert job.finds_hosts and job.grows
    assert parse(["--pods", "3", "--max-np", "2", "true"]).num_proc == 2


def test_outside_of_kubernetes(monkeypatch):
    monkeypatch.delenv("JOB_COMPLETION_INDEX", raising=False)
    result = launch("--pods", "2", "true")
    assert result.code == 2
    assert "--pods: this is no pod of an indexed Job" in result.err
