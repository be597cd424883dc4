"""All ranks train what one rank with the joined data trains: see corners.py, which has the rows."""

import corners
import pytest

pytestmark = pytest.mark.ranks(2, 3)


@pytest.mark.parametrize(("name", "case"), corners.parameters())
def test_is_what_one_rank_trains(name, case):
    corners.check(corners.CORNERS[name], case)
