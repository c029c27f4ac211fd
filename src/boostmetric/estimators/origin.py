"""The origin of a metric: facts about the fit that an estimator stores in the metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from boostmetric._version import __version__
from boostmetric.metric import Metric


def with_origin(metric: Metric, estimator: Any, facts: Mapping[str, Any]) -> Metric:
    """The metric with the names of an estimator's features, and with facts about the fit.

    The class ("estimator"), the version ("boostmetric"), the time in UTC ("made") and the
    "parameters" are added to the given facts.

    Examples
    --------
    >>> from boostmetric import BoostMetric
    >>> metric = Metric(np.eye(2), np.ones(2))
    >>> learned = with_origin(metric, BoostMetric(max_iter=7), {"n_iter": np.int64(5)})
    >>> learned.origin["estimator"], learned.origin["parameters"]["max_iter"]
    ('BoostMetric', 7)
    >>> learned.origin["n_iter"]
    5
    """
    names = getattr(estimator, "feature_names_in_", None)
    origin = {
        "estimator": type(estimator).__name__,
        "boostmetric": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "parameters": estimator.get_params(deep=False),
        **facts,
    }
    names = None if names is None else tuple(names)
    return replace(metric, feature_names=names, origin=as_json(origin))


def as_json(value: Any) -> Any:
    """The value in types that JSON has: tuples become lists, other objects become their repr.

    >>> as_json({"n_neighbors": (5, 10), "tol": np.float32(0.5), "init": np.eye(1)})
    {'n_neighbors': [5, 10], 'tol': 0.5, 'init': 'array([[1.]])'}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): as_json(each) for key, each in value.items()}
    return repr(value)
