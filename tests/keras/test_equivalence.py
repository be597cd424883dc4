"""Two ranks are one: 20 steps on 2 ranks equal 20 steps on 1 rank with the joined batch.

On GPUs (fakes of them): tests/gpu/on_fakes.py.
"""

import equivalence
import pytest
from variants import also
from with_xla import needs_xla

pytestmark = pytest.mark.ranks(2)


@pytest.mark.parametrize("kind", [also("sgd"), "adam"])
@pytest.mark.parametrize(
    ("package", "train"),
    [
        ("keras", equivalence.fit),
        also("keras", equivalence.fit_compiled),
        also("tf_keras", equivalence.fit),
        ("keras", equivalence.loop_with_optimizer),
        ("keras", equivalence.loop_with_tape),
        also("keras", equivalence.compiled_loop_with_tape, marks=[needs_xla]),
        also("tf_keras", equivalence.loop_with_tape),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_equals_one_rank_on_the_joined_batch(package, train, kind):
    equivalence.check(package, train, kind)
