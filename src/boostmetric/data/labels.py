"""Labels y, which define the points that are similar.

Two points are similar if they share a label. With one label per point, these are the points of a
class. Multilabel targets are an indicator matrix of shape (n, L), whose entry (i, l) is 1 if point
i has label l; a point without labels is not similar to any other.
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


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of n points.

    Attributes
    ----------
    codes : array of shape (n,), the row of `sets` with the labels of each point
    sets : CSR array of shape (S, L) of 0 and 1, the distinct label sets; for classes, the identity
    classes : array of shape (S,), the sorted classes; None for multilabel targets

    Examples
    --------
    >>> labels = Labels.of(["b", "a", "b"])
    >>> labels.are_similar(labels.codes[:1], labels.codes)
    array([[ True, False,  True]])
    >>> labels = Labels.of([[1, 1, 0], [0, 1, 1], [0, 0, 0]])
    >>> labels.are_similar(labels.codes[:1], labels.codes)
    array([[ True,  True, False]])
    """

    codes: NDArray
    sets: csr_array
    classes: NDArray | None = None

    @classmethod
    def of(cls, y: ArrayLike | csr_array) -> Labels:
        """Parse y, an array of shape (n,) or an indicator matrix of shape (n, L)."""
        known = label_array(y)
        indicator = as_indicator(known)
        if indicator is not None:
            first, codes = distinct_points(indicator, np.zeros(indicator.shape[0], dtype=np.intp))
            return cls(codes, indicator[first])
        if known.ndim != 1:
            raise ValueError(f"y must have shape (n,) or (n, L); got {known.shape}.")
        check_complete(known)
        try:
            classes, codes = np.unique(known, return_inverse=True)
        except TypeError as error:
            raise ValueError(f"The labels y must be of one sortable type: {error}.") from None
        return cls(
            codes.reshape(-1), eye_array(len(classes), dtype=np.int32, format="csr"), classes
        )

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: NDArray) -> Labels:
        """The labels of the chosen points."""
        return replace(self, codes=self.codes[rows])

    @property
    def labeled(self) -> NDArray:
        """Whether each point has a label, of shape (n,)."""
        return np.asarray(np.diff(self.sets.indptr)[self.codes] > 0)

    def counts(self) -> NDArray:
        """The number of points with each label, of shape (L,)."""
        return np.asarray(self.sets.T @ np.bincount(self.codes, minlength=self.sets.shape[0]))

    def are_similar(self, codes: NDArray, others: NDArray) -> NDArray:
        """Whether the sets with these codes share a label, of shape (codes, others)."""
        if self.classes is not None:
            return np.equal.outer(codes, others)
        return np.asarray((self.sets[codes] @ self.sets[others].T).toarray() > 0)

    def name(self, code: int) -> str:
        """The name of a class or label set in messages."""
        if self.classes is not None:
            return f"class {_name(self.classes[code])}"
        labels = self.sets[[code]].indices.tolist()
        return f"label set {{{', '.join(map(str, labels))}}}"


def label_array(y: ArrayLike | csr_array) -> Points:
    """Convert y to an array, or to a CSR array if it is sparse.

    Raises a ValueError if y is a list of strings and other labels, which NumPy converts to strings.

    >>> label_array(["a", 1])
    Traceback (most recent call last):
    ValueError: The labels y must be of one sortable type; got int and str.
    """
    try:
        labels = as_points(y)
    except ValueError:
        raise ValueError(
            "y is a list of lists of different lengths. Multilabel targets must be an indicator "
            "matrix of shape (n, L); MultiLabelBinarizer creates one."
        ) from None
    if labels.dtype.kind in "SU" and isinstance(y, list | tuple):
        given = np.array(y, dtype=object)
        check_complete(given)
        if not any(all(isinstance(each, kind) for each in given.flat) for kind in (str, bytes)):
            types = " and ".join(sorted({type(each).__name__ for each in given.flat}))
            raise ValueError(f"The labels y must be of one sortable type; got {types}.")
    return labels


def as_indicator(y: ArrayLike | csr_array) -> csr_array | None:
    """Convert a y of several columns to a CSR array of 0 and 1; return None for any other y.

    Raises a ValueError for other values.

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
            f"y of shape {given.shape} must be an indicator matrix of 0 and 1 with one column per "
            f"label; got {_name(others.flat[0])}. Multioutput targets are not supported: pass one "
            "column, or the indicator matrix of MultiLabelBinarizer."
        )
    return csr_array((given == 1).astype(np.int32))


def check_complete(known: NDArray) -> None:
    """Raise a ValueError if labels are missing: NaN, None, or NA and NaT of pandas.

    >>> check_complete(np.array(["a", None]))
    Traceback (most recent call last):
    ValueError: y has 1 missing labels, the first in row 1. Drop these points, or ...
    """
    if known.dtype.kind == "O":
        # Comparing NA of pandas with anything gives NA, which is neither true nor false.
        types = ("NoneType", "NAType", "NaTType")
        each = [type(value).__name__ in types or bool(value != value) for value in known.flat]
        missing = np.array(each, dtype=bool).reshape(known.shape)
    else:
        missing = known != known
    if missing.any():
        first = int(np.argwhere(missing)[0, 0])
        raise ValueError(
            f"y has {int(missing.sum())} missing labels, the first in row {first}. Drop these "
            "points, or assign them a label."
        )


def single_labels(y: ArrayLike | csr_array) -> NDArray:
    """Labels of shape (n,), one per point; a single column is raveled, with a warning.

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
    """Parse and check labels and sample weights.

    Raises a ValueError if the labels yield no comparisons: there must be two classes, one of them
    with at least two points, and points of two classes with positive weight. For multilabel
    targets, some label must be shared by two points of positive weight, and no label by all of
    them.

    >>> check_labels(["b", "a", "b", "a"])[0].codes.tolist()
    [1, 0, 1, 0]
    """
    labels = Labels.of(y)
    if len(labels) == 0:
        raise ValueError("y is empty. Labels of at least two classes are required.")
    classes = labels.classes
    if classes is not None:
        if classes.dtype.kind == "f" and (fractions := classes[classes % 1 != 0]).size:
            raise ValueError(
                f"Unknown label type: continuous. Labels of type float must be integers; got "
                f"{_name(fractions[0])}. Convert the labels to strings or integers."
            )
        if len(classes) < 2:
            raise ValueError(
                f"y has only one class, {_name(classes[0])}. At least two classes are required."
            )
        if (labels.counts() < 2).all():
            raise ValueError(
                f"All {len(classes)} classes have a single sample. At least one class must have 2 "
                "samples."
            )
    weights = non_negative("sample_weight", sample_weight, len(labels))
    weighted = labels if weights is None else labels[weights > 0]
    counts = weighted.counts()
    if classes is not None:
        if np.count_nonzero(counts) < 2:
            raise ValueError(
                "sample_weight is zero for all points, or for all but one class. Points of at "
                "least two classes must have positive weight."
            )
    elif not counts.any():
        raise ValueError(
            "y is 0 for all points of positive weight. At least two points must share a label."
        )
    elif counts.max() < 2:
        raise ValueError("No two points of positive weight share a label, so none has targets.")
    elif counts.max() == len(weighted):
        raise ValueError(
            f"All points of positive weight have label {int(counts.argmax())}, so none has "
            "impostors. Drop this column of y."
        )
    return labels, weights


def _name(label: object) -> str:
    return repr(label.item() if isinstance(label, np.generic) else label)
