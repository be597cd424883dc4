"""The finished `fit` calls of an elastic job, which a joining rank skips.

The joining rank continues with the others' history of such a `fit`, and with their results of each
later `evaluate` of the same model. The model keeps its present weights until its next training.
Then the others admit the rank and give it their weights.
"""

from __future__ import annotations

import contextlib
import json
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tfhvd.keras.fit import progress_bars
from tfhvd.keras.joining import fit_warmup
from tfhvd.keras.joining.histories import as_bytes, history_of, set_history
from tfhvd.keras.wrap.model_state import may_reduce
from tfhvd.runtime.elastic.call_log import EVALUATE, FIT, NO_RESULT, Call
from tfhvd.runtime.elastic.replay import comers
from tfhvd.runtime.membership import membership

if TYPE_CHECKING:
    from tfhvd.compat.types import Instead, Model
    from tfhvd.keras.fit.session import FitSession

_logger = logging.getLogger("tfhvd")
_fitted: weakref.WeakSet[Model] = weakref.WeakSet()  # by a finished fit
membership.at_leaving(_fitted.clear)


def note(epochs: FitSession, completed: bool) -> None:
    """Records a finished `fit` for ranks that join later.

    Args:
        epochs: this rank's part in the `fit`.
        completed: whether the `fit` has returned.
    """
    model = epochs.model
    if not epochs.admission.is_open:
        return
    if not completed or epochs.in_process_set:
        comers.end_training()  # the ranks are in different places
    elif not epochs.active:
        comers.end_training(_call(FIT, model), NO_RESULT)
    elif (history := history_of(model)) is None:
        comers.end_training()
    else:
        comers.end_training(_call(FIT, model), [history])
        _fitted.add(model)


def ended(model: Model, arguments: dict[str, Any]) -> Instead | None:
    """Returns what a joining rank does instead of a `fit` that the others have finished.

    Args:
        model: of either Keras.
        arguments: of its `fit`, by their names, with the model as "self".

    Returns:
        None if the others have not finished this `fit`.

    Raises:
        TfhvdError: if the others have made another call.
    """
    if not may_reduce(model):
        return None
    values = comers.ended(_call(FIT, model))
    if values is None:
        return None
    if not values:
        return _run
    _logger.log(
        logging.INFO if model in _fitted else logging.WARNING,  # one warning for all fits of a loop
        "rank %d does not train '%s' in this fit: the other ranks finished it before this rank "
        "joined. This rank continues with their history; the model keeps its present weights "
        "until the next fit gives it theirs.",
        membership.require_topology().rank,
        model.name,
    )
    fit_warmup.build(model, arguments)
    comers.expect(fit_warmup.shared_variables(model))
    set_history(model, values[0])
    _fitted.add(model)
    return lambda run: model.history


def alone(model: Model) -> Instead:
    """Returns what a joining rank does in a `fit` that each rank does by itself."""
    if may_reduce(model):
        comers.train_alone()
    return _run


def _run(run: Callable[[], Any]) -> Any:
    return run()


@contextlib.contextmanager
def around_evaluate(model: Model, arguments: dict[str, Any]) -> Iterator[Instead | None]:
    """Surrounds `evaluate`: records its results after a `fit` for ranks that join later."""
    progress_bars.choose(model, arguments)
    if not (comers.keeps and model in _fitted):
        yield None
        return
    call = _call(EVALUATE, model)
    known = comers.recall(call)
    if known is not None:
        [data] = known
        yield lambda run: json.loads(data or b"")
        return

    def evaluate(run: Callable[[], Any]) -> Any:
        with comers.kept_whole():
            result = run()
        data = as_bytes(result)
        if data is None:
            comers.take_part()
        else:
            comers.keep(call, len(data), [data])
        return result

    yield evaluate


@contextlib.contextmanager
def around_predict(model: Model, arguments: dict[str, Any]) -> Iterator[None]:
    """Surrounds `predict`: a joining rank with other weights than the others stays out."""
    progress_bars.choose(model, arguments)
    if membership.is_apart and model in _fitted:
        _logger.warning(
            "This rank cannot join the job: '%s' predicts here, after a fit that is over there, "
            "and its weights are not those of the other ranks.",
            model.name,
        )
        comers.stay_out()
    yield


def _call(kind: str, model: Model) -> Call:
    return Call(kind, model.name, ())
