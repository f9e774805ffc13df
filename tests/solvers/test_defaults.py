"""Solvers and estimators agree on what an option is where it is left out."""

import dataclasses
import inspect

import pytest

from bigmc import MinimaxRiskClassifier, MultiBoostClassifier
from bigmc.solvers.boosting import BoostingOptions
from bigmc.solvers.minimax import MinimaxParameters


@pytest.mark.parametrize(
    ("estimator", "options"),
    [(MultiBoostClassifier, BoostingOptions), (MinimaxRiskClassifier, MinimaxParameters)],
)
def test_defaults(estimator, options):
    own = {field.name: field.default for field in dataclasses.fields(options)}
    asked = {name: p.default for name, p in inspect.signature(estimator).parameters.items()}
    # None and "auto" are chosen by the data, and C has no default in the solver
    shared = {name for name in own.keys() & asked.keys() - {"C"} if asked[name] not in (None, "auto")}
    assert len(shared) >= 6
    assert {name: own[name] for name in shared} == {name: asked[name] for name in shared}
