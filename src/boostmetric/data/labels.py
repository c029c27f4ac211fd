"""What y says of the points: which of them are similar.

Two points are similar if they have a label in common. Where every point has one label these are the
points of a class; where it may have several, y is an indicator of shape (n, L) whose entry (i, l)
is 1 if point i has label l. A point without any label is similar to none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, eye_array, issparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from boostmetric._validation import non_negative
from boostmetric.data.points import Points, as_points, distinct_points

MISSING = ("NoneType", "NAType", "NaTType")
"""Types of values that stand for no label; NaN, which is unequal to itself, is another."""

ONE_TYPE = "y must hold labels of one type, which can be sorted"


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of n points.

    Attributes
    ----------
    codes : array of shape (n,), which set of labels a point has
    sets : CSR array of shape (S, L) of 0 and 1, the distinct sets; of classes, the identity
    classes : array of shape (S,), the classes in their order, or None where points have sets

    Examples
    --------
    >>> Labels.of(["b", "a", "b"]).similar(slice(0, 1))
    array([[ True, False,  True]])
    >>> Labels.of([[1, 1, 0], [0, 1, 1], [0, 0, 0]]).similar(slice(0, 1))
    array([[ True,  True, False]])
    """

    codes: NDArray
    sets: csr_array
    classes: NDArray | None = None

    @classmethod
    def of(cls, y: ArrayLike | csr_array) -> Labels:
        """The labels that y holds, an array of shape (n,) or an indicator of shape (n, L)."""
        indicator = as_indicator(y)
        if indicator is not None:
            first, codes = distinct_points(indicator, np.zeros(indicator.shape[0], dtype=np.intp))
            return cls(codes, indicator[first])
        known = label_array(y)
        if known.ndim != 1:
            raise ValueError(f"y of shape (n,) or (n, L) is needed; got {known.shape}.")
        check_complete(known)
        try:
            classes, codes = np.unique(known, return_inverse=True)
        except TypeError as error:
            raise ValueError(f"{ONE_TYPE}: {error}.") from None
        return cls(
            codes.reshape(-1), eye_array(len(classes), dtype=np.int32, format="csr"), classes
        )

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: NDArray) -> Labels:
        """The labels of the chosen points."""
        return replace(self, codes=self.codes[rows])

    @property
    def labelled(self) -> NDArray:
        """Whether a point has a label at all, of shape (n,)."""
        has_any: NDArray = np.diff(self.sets.indptr)[self.codes] > 0
        return has_any

    def counts(self) -> NDArray:
        """The number of points that have a label, of shape (L,)."""
        points_of_set = np.bincount(self.codes, minlength=self.sets.shape[0])
        counts: NDArray = self.sets.T @ points_of_set
        return counts

    def similar(self, rows: slice) -> NDArray:
        """Which of all points are similar to the chosen ones, of shape (chosen, n)."""
        shared: NDArray = (self.sets[self.codes[rows]] @ self.sets.T).toarray() > 0
        return shared[:, self.codes]

    def are_similar(self, codes: NDArray, others: NDArray) -> NDArray:
        """Whether the sets with these codes share a label, of shape (codes, others)."""
        if self.classes is not None:
            return np.equal.outer(codes, others)
        shared: NDArray = (self.sets[codes] @ self.sets[others].T).toarray() > 0
        return shared

    def name(self, code: int) -> str:
        """What a message calls the points of a set."""
        if self.classes is not None:
            return f"class {_name(self.classes[code])}"
        labels = self.sets[[code]].indices.tolist()
        return f"label set {{{', '.join(map(str, labels))}}}"


def label_array(y: ArrayLike | csr_array) -> Points:
    """y as an array, or as a CSR array if it is sparse.

    Raises a ValueError if y is a list of strings and other labels: NumPy makes strings of them.

    >>> label_array(["a", 1])
    Traceback (most recent call last):
    ValueError: y must hold labels of one type, which can be sorted; got int and str.
    """
    try:
        labels = as_points(y)
    except ValueError:
        raise ValueError(
            "y is a list of lists of different lengths. For multilabel targets give an indicator "
            "of shape (n, L), such as MultiLabelBinarizer makes."
        ) from None
    if labels.dtype.kind in "SU" and isinstance(y, list | tuple):
        given = np.array(y, dtype=object)
        check_complete(given)
        if not any(all(isinstance(each, kind) for each in given.flat) for kind in (str, bytes)):
            types = " and ".join(sorted({type(each).__name__ for each in given.flat}))
            raise ValueError(f"{ONE_TYPE}; got {types}.")
    return labels


def as_indicator(y: ArrayLike | csr_array) -> csr_array | None:
    """A 2-D y of several columns as a CSR array of 0 and 1; None for any other y.

    Raises a ValueError where it holds anything else.

    >>> as_indicator(["a", "b"]) is None
    True
    >>> as_indicator([[True, False], [True, True]]).toarray()
    array([[1, 0],
           [1, 1]], dtype=int32)
    """
    given: Any = label_array(y)
    if given.ndim != 2 or given.shape[1] < 2:
        return None
    values = given.data if issparse(given) else given
    check_complete(values)
    if not np.isin(values, (0, 1)).all():
        others = values[~np.isin(values, (0, 1))]
        raise ValueError(
            f"y of shape {given.shape} must be an indicator of 0 and 1, column l for label l; it "
            f"holds {_name(others.flat[0])}. Several classes for each point (multioutput) are not "
            "learned from: give one column, or MultiLabelBinarizer's indicator."
        )
    return csr_array((given == 1).astype(np.int32))


def check_complete(known: NDArray) -> None:
    """Raise a ValueError where labels are missing: NaN, None, and what pandas has for these.

    >>> check_complete(np.array(["a", None]))
    Traceback (most recent call last):
    ValueError: y has 1 missing labels, the first in row 1. Drop these points, or ...
    """
    if known.dtype.kind == "O":
        # Comparing pandas' NA with anything gives NA, which is neither true nor false.
        each = [type(value).__name__ in MISSING or bool(value != value) for value in known.flat]
        missing = np.array(each, dtype=bool).reshape(known.shape)
    else:
        missing = known != known
    if missing.any():
        first = int(np.argwhere(missing)[0, 0])
        raise ValueError(
            f"y has {int(missing.sum())} missing labels, the first in row {first}. Drop these "
            "points, or give them a label of their own."
        )


def single_labels(y: ArrayLike | csr_array) -> NDArray:
    """Labels of shape (n,), one per point; a single column is flattened, with a warning.

    >>> single_labels(["a", "b"]).tolist()
    ['a', 'b']
    """
    labels: NDArray = column_or_1d(csr_array(y).toarray() if issparse(y) else y, warn=True)
    check_complete(labels)
    if labels.dtype.kind != "O":  # scikit-learn accepts strings only
        check_classification_targets(labels)
    return labels


def check_labels(
    y: ArrayLike | csr_array, sample_weight: ArrayLike | None = None
) -> tuple[Labels, NDArray | None]:
    """The labels, and the weights of the points as an array.

    Raises a ValueError unless there are at least two classes, one of them with two points or more,
    and points of two classes have a positive weight. Of an indicator, a label must be shared by two
    points that count, and none by all of them.

    >>> check_labels(["b", "a", "b", "a"])[0].codes.tolist()
    [1, 0, 1, 0]
    """
    labels = Labels.of(y)
    if len(labels) == 0:
        raise ValueError("y is empty: labels of at least two classes are needed.")
    if labels.classes is not None:
        _check_classes(labels.classes, labels.counts())
    weights = non_negative("sample_weight", sample_weight, len(labels))
    counted = labels if weights is None else labels[weights > 0]
    if labels.classes is None:
        _check_sets(counted)
    elif np.count_nonzero(counted.counts()) < 2:
        raise ValueError(
            "sample_weight is zero for all points, or for all but those of one class: points of "
            "at least two classes must count."
        )
    return labels, weights


def _check_classes(classes: NDArray, counts: NDArray) -> None:
    """Reject classes of which no comparison can be made, and a continuous y."""
    if classes.dtype.kind == "f" and (fractions := classes[classes % 1 != 0]).size:
        raise ValueError(
            f"Unknown label type: continuous. Labels that are floats must be whole numbers, but y "
            f"holds {_name(fractions[0])}. Convert the labels to strings or integers."
        )
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only, {_name(classes[0])}: comparisons need points of at least two."
        )
    if (counts < 2).all():
        raise ValueError(
            f"All {len(classes)} classes have a single sample: no two points share a class. "
            "Comparisons require a class with at least 2 samples."
        )


def _check_sets(labels: Labels) -> None:
    """Refuse sets of labels of which no comparison can be made."""
    counts = labels.counts()
    if not counts.any():
        raise ValueError(
            "y is 0 for all points (that count): two points at least must share a label."
        )
    if counts.max() < 2:
        raise ValueError("no two points (that count) share a label, so there are no targets.")
    if counts.max() == len(labels):
        raise ValueError(
            f"all points (that count) have label {int(counts.argmax())}, so there are no "
            "impostors. Drop this column of y."
        )


def _name(label: object) -> str:
    return repr(label.item() if isinstance(label, np.generic) else label)
