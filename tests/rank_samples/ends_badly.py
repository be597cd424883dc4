"""Two tests that pass, in a process that ends with an error: see test_ranks.py."""

import atexit
import os

import pytest

pytestmark = pytest.mark.ranks(1)


def test_first():
    pass


def test_last():
    # Called after those that are registered later: when everything else has ended well.
    atexit.register(os._exit, 3)
