"""Barriers of ranks that join later to an elastic job."""

from __future__ import annotations

import sys

import pytest
from launching import launch, script, wait_until_gone

from tfhvd.launch.state.join_barriers import JoinBarriers

HOSTS = {4: "a", 5: "b", 6: "b", 7: "c"}


def test_those_of_one_host_wait_for_each_other():
    barriers = JoinBarriers()
    barriers.come(5, 1)
    assert barriers.due(HOSTS, []) == {}
    barriers.come(4, 1)  # alone on its host
    assert barriers.due(HOSTS, []) == {4: 1}
    barriers.come(6, 1)
    assert barriers.due(HOSTS, []) == {5: 1, 6: 1}
    assert barriers.due(HOSTS, []) == {}
    barriers.come(5, 2)
    assert barriers.due(HOSTS, []) == {}
    barriers.come(6, 2)
    assert barriers.due(HOSTS, []) == {5: 2, 6: 2}


def test_nobody_waits_for_one_that_has_ended_or_comes_to_no_barrier():
    barriers = JoinBarriers()
    barriers.come(5, 1)
    assert barriers.due(HOSTS, settled=[4]) == {}
    assert barriers.due(HOSTS, settled=[6]) == {5: 1}
    barriers.come(5, 2)
    assert barriers.due({4: "a", 5: "b", 7: "c"}, []) == {5: 2}


# Whoever is the first one of those that come gets data for its host, which the others read.
DOWNLOAD = """
import tfhvd as hvd
hvd.init()
file = f"{__file__}.data"
if hvd.size() == 1:
    hvd.barrier()
else:
    assert (hvd.size(), hvd.local_size()) == (3, 3)
    if hvd.local_rank() == 1:
        time.sleep(1)
        if sys.argv[1] == "fails" and not os.path.exists(f"{__file__}.failed"):
            open(f"{__file__}.failed", "w").close()
            sys.exit("no such data")
        open(file, "w").close()
    hvd.barrier()
    if sys.argv[1] == "downloads":
        assert os.path.exists(file), hvd.rank()
    hvd.barrier()
state = hvd.elastic.ObjectState()

@hvd.elastic.run
def train(state):
    size = hvd.size()
    while size < 3:  # until a commit lets others in, and all begin anew
        state.commit()
        time.sleep(0.01)

train(state)
print(f"rank {hvd.rank()} of {hvd.size()}\\n", end="", flush=True)
"""


@pytest.mark.usefixtures("preloaded_jobs")
@pytest.mark.parametrize("way", ["downloads", pytest.param("fails", marks=pytest.mark.thorough)])
def test_ranks_that_come_to_one_host_wait_for_each_other_at_a_barrier(tmp_path, way):
    path = script(tmp_path, DOWNLOAD)
    words = ("-np", 1, "--max-np", 3, "--blacklist-cooldown-range", 0.1, 0.1, "--no-prefix")
    result = launch(*words, sys.executable, path, way, timeout=100)
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == [f"rank {rank} of 3" for rank in range(3)]
    assert result.err.count("no such data") == 2 * (way == "fails"), result.err
    assert wait_until_gone(str(path)) == []
