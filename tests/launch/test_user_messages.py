"""The words of messages, as a person reads them: see user_messages.py."""

from __future__ import annotations

import re
import shlex
import sys

import children
import pytest
import python_scan
import troubleshooting
from launching import launch, script
from user_messages import MESSAGES

OF_JOBS = [name for name, message in MESSAGES.items() if message.program]


@pytest.mark.parametrize("name", OF_JOBS)
def test_what_a_job_says(name, tmp_path):
    message = MESSAGES[name]
    path = script(tmp_path, message.program)
    outcome = launch(*shlex.split(message.options), sys.executable, path, **message.env)
    assert outcome.code == message.code, outcome.err
    assert re.fullmatch(message.pattern() + "\n", outcome.err), outcome.err
    if message.symptom:
        troubleshooting.check(message.symptom, outcome.err)


@pytest.mark.parametrize("name", [name for name in MESSAGES if name not in OF_JOBS])
def test_a_message_that_is_made_elsewhere_is_compared_there(name):
    file = children.ROOT / "tests" / MESSAGES[name].made_by
    assert name in python_scan.first_arguments(file, "user_messages.check")
