"""Objects of this package as plain data, so that a stored estimator names no class but its own.

Members of an enumeration are stored by name: their texts may change from version to version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any

CLASS = "$class"
"""The key that has the name of the class, beside those that have its fields."""


def to_plain(value: Any, classes: Collection[type]) -> Any:
    """The value with dicts for the objects of these classes, in lists, tuples and dicts as well.

    Parameters
    ----------
    value : anything; what is not of these classes stays as it is
    classes : dataclasses, named tuples and enumerations

    Examples
    --------
    >>> from boostmetric import Status
    >>> stored = to_plain({"status_": Status.STALLED, "alpha_": 0.5}, [Status])
    >>> stored
    {'status_': {'$class': 'Status', 'name': 'STALLED'}, 'alpha_': 0.5}
    >>> from_plain(stored, [Status])["status_"] is Status.STALLED
    True
    """
    if type(value) in classes:
        inner = _within(_fields_of(value), partial(to_plain, classes=classes))
        return {CLASS: type(value).__name__, **inner}
    return _within(value, partial(to_plain, classes=classes))


def from_plain(value: Any, classes: Collection[type]) -> Any:
    """What `to_plain` made a plain value from."""
    value = _within(value, partial(from_plain, classes=classes))
    if type(value) is not dict or CLASS not in value:
        return value
    given = {name: each for name, each in value.items() if name != CLASS}
    made = next(each for each in classes if each.__name__ == value[CLASS])
    return made[given["name"]] if issubclass(made, Enum) else made(**given)


def _fields_of(value: Any) -> dict[str, Any]:
    if isinstance(value, Enum):
        return {"name": value.name}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    named: dict[str, Any] = value._asdict()
    return named


def _within(value: Any, change: Callable[[Any], Any]) -> Any:
    """A list, tuple or dict with its items changed; anything else as it is."""
    if type(value) is list or type(value) is tuple:
        return type(value)(change(each) for each in value)
    if type(value) is dict:
        return {key: change(each) for key, each in value.items()}
    return value
