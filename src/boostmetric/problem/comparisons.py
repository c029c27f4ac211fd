"""Comparisons: statements that one pair of points should be farther apart than another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils import check_random_state

from boostmetric._validation import check_parameter, finite, non_negative, warn
from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.labels import Labels, check_labels, label_array
from boostmetric.data.pairs import are_same, draw_triplets
from boostmetric.data.points import as_floats
from boostmetric.engines import Threads, single_blas_thread
from boostmetric.neighbors import (
    NONE,
    Index,
    indexed_targets_and_impostors,
    nearest_in_parts,
    nearest_targets_and_impostors,
)


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Comparisons of distances between rows of X: d²(far_r) − d²(near_r) > gap_r, for r = 1 … m.

    Created by `from_labels`, `from_triplets`, `from_quadruplets`, `from_pairs` or `from_people`.
    `a + b` concatenates two sets, `comparisons[rows]` selects a subset. Points are referred to by
    row number, not copied: O(m) memory.

    Attributes
    ----------
    pairs : array of shape (P, 2), the distinct pairs i ≤ j in lexicographic order. A point paired
        with itself is the null pair, (0, 0), at distance 0
    near, far : arrays of shape (m,), positions in `pairs`
    gaps : array of shape (m,), or None if all are 0
    weights : array of shape (m,), or None if all are 1
    n_points : the number of rows of X if it was given, or None
    recall : share of the true neighbors that an index found, or None without an index

    Examples
    --------
    >>> c = Comparisons.from_triplets([[0, 1, 2], [3, 2, 1]])
    >>> len(c), c.pairs.tolist()
    (2, [[0, 1], [0, 2], [1, 3], [2, 3]])
    >>> len(c + Comparisons.from_quadruplets([[0, 1, 2, 3]], weights=2.0))
    3
    """

    pairs: NDArray
    near: NDArray
    far: NDArray
    gaps: NDArray | None = None
    weights: NDArray | None = None
    n_points: int | None = None
    recall: float | None = None

    def __len__(self) -> int:
        return len(self.near)

    def __repr__(self) -> str:
        n, n_pairs = len(self), len(self.pairs)
        return f"<{n} comparison{'s' * (n != 1)}, {n_pairs} pair{'s' * (n_pairs != 1)}>"

    @classmethod
    def from_labels(
        cls,
        X: ArrayLike | csr_array | DaskPoints,
        y: ArrayLike | csr_array,
        n_targets: int = 3,
        n_impostors: int = 3,
        *,
        index: str | Index | None = None,
        sample_weight: ArrayLike | None = None,
        likely_pairs: ArrayLike | None = None,
        n_jobs: int | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Comparisons:
        """Each point is closer to the nearest points of its class than to those of other classes.

        Each point is combined with its `n_targets` nearest points of the same class and its
        `n_impostors` nearest points of other classes, as in the paper's experiments:
        n·n_targets·n_impostors comparisons. Of duplicates with the same class, the first represents
        all, and duplicates of a point are not its targets.

        With multilabel targets, the targets of a point are the nearest points that share a label
        with it, impostors the nearest that share none. A point without labels has no targets, but
        may be an impostor.

        Parameters
        ----------
        X : array of shape (n, D), dense or sparse
        y : array of shape (n,), labels of any sortable type; or an indicator matrix of shape
            (n, L), dense or sparse, of 0 and 1
        n_targets, n_impostors : numbers of neighbors; if a class has fewer, the available ones are
            used, with a warning
        index : None for an exact search, "faiss" (`boostmetric[approximate]`), or an object with
            `fit(X)` and `kneighbors(X, n_neighbors)`; the share of true neighbors that the index
            finds is measured on a sample and stored in `recall`. Sparse X and multilabel targets
            require None
        sample_weight : array of shape (n,), the weight of the comparisons with this anchor. Points
            of weight 0 are ignored
        likely_pairs : array of shape (P, 2) of row numbers, pairs that are likely neighbors, such
            as the `pairs` of comparisons made in another space. An exact search in memory starts
            from them, which saves time and does not affect the result
        n_jobs : number of threads, which does not affect the result; None uses the cores available
            to the process
        should_stop : called repeatedly during an exact search; if it returns True,
            `boostmetric.engines.StopRequested` is raised

        Examples
        --------
        >>> len(Comparisons.from_labels([[0], [1], [5], [6]], list("aabb"), 1, 2))
        8
        """
        points: Any = X if isinstance(X, DaskPoints) else as_floats(X)
        known = label_array(y)
        if points.ndim != 2 or known.shape[:1] != points.shape[:1] or known.shape[1:] == (1,):
            raise ValueError(
                f"X must have shape (n, D) and y n labels; got {points.shape} and {known.shape}."
            )
        labels, weights = check_labels(known, sample_weight)
        for name, number in (("n_targets", n_targets), ("n_impostors", n_impostors)):
            check_parameter(name, number, number >= 1, "an int in the range [1, inf)")
        pairs = None if likely_pairs is None else np.asarray(likely_pairs)
        if pairs is not None:
            if pairs.shape[1:] != (2,) or pairs.dtype.kind not in "iu":
                raise ValueError(
                    "likely_pairs must be integers of shape (P, 2); got "
                    f"{pairs.dtype} of shape {pairs.shape}."
                )
            if len(pairs) and not 0 <= pairs.min() <= pairs.max() < len(labels):
                raise ValueError(
                    f"likely_pairs must be row numbers of X, from 0 to {len(labels) - 1}; got "
                    f"{pairs.min()} to {pairs.max()}."
                )
        rows = np.arange(len(labels)) if weights is None else np.flatnonzero(weights > 0)
        labels = labels[rows]
        # 1) the nearest points of the same class, and of other classes
        numbers, recall = (n_targets, n_impostors), None
        if index is not None and (issparse(points) or labels.classes is None):
            raise ValueError(
                f"index={index!r:.80} does not work with "
                + ("sparse X" if issparse(points) else "multilabel targets")
                + ". Use index=None"
                + (", or reduce X with TruncatedSVD first." if issparse(points) else ".")
            )
        with single_blas_thread(), Threads(n_jobs) as threads:  # the search has its own threads
            if isinstance(points, DaskPoints):
                targets, impostors, recall = nearest_in_parts(points, rows, labels, numbers, index)
            elif index is not None:
                targets, impostors, recall = indexed_targets_and_impostors(
                    points[rows], labels, *numbers, index, threads=threads
                )
            else:
                if pairs is not None:  # as positions in `rows`
                    position = np.full(points.shape[0], NONE)
                    position[rows] = np.arange(len(rows))
                    pairs = position[pairs]
                    pairs = pairs[(pairs != NONE).all(axis=1)]
                targets, impostors = nearest_targets_and_impostors(
                    points[rows],
                    labels,
                    *numbers,
                    likely_pairs=pairs,
                    threads=threads,
                    should_stop=should_stop,
                )
        _warn_of_missing(labels, targets, "target")
        _warn_of_missing(labels, impostors, "impostor")
        # 2) all triplets of a point, one of its targets and one of its impostors
        anchor = np.repeat(np.arange(len(rows)), n_targets * n_impostors)
        target = np.repeat(targets, n_impostors, axis=1).ravel()
        impostor = np.tile(impostors, (1, n_targets)).ravel()
        exist = (target != NONE) & (impostor != NONE)
        triplets = rows[np.stack([anchor, target, impostor], axis=1)[exist]]
        made = cls.from_triplets(
            triplets,
            weights=None if weights is None else weights[triplets[:, 0]],
            n_points=points.shape[0],
        )
        return replace(made, recall=recall)

    @classmethod
    def from_triplets(
        cls,
        triplets: ArrayLike,
        *,
        gaps: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        n_points: int | None = None,
    ) -> Comparisons:
        """Rows (a, b, c): a is closer to b than to c.

        Parameters
        ----------
        triplets : array of shape (m, 3) of row numbers
        gaps : required differences of the squared distances; a number or one per comparison
        weights : weights ≥ 0; a number or one per comparison
        n_points : the number of rows of X; if given, a different X is rejected

        Examples
        --------
        >>> Comparisons.from_triplets([[0, 1, 2]], gaps=1.0)
        <1 comparison, 2 pairs>
        """
        rows = _indices("triplets", triplets, 3)
        return cls._from_ends(rows[:, :2], rows[:, ::2], gaps, weights, n_points)

    @classmethod
    def from_quadruplets(
        cls,
        quadruplets: ArrayLike,
        *,
        gaps: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        n_points: int | None = None,
    ) -> Comparisons:
        """Rows (a, b, c, d): a and b are closer to each other than c and d.

        Parameters as in `from_triplets`.

        Examples
        --------
        >>> Comparisons.from_quadruplets([[0, 1, 2, 3], [4, 5, 2, 3]])
        <2 comparisons, 3 pairs>
        """
        rows = _indices("quadruplets", quadruplets, 4)
        return cls._from_ends(rows[:, :2], rows[:, 2:], gaps, weights, n_points)

    @classmethod
    def from_pairs(
        cls,
        pairs: ArrayLike,
        y: ArrayLike,
        *,
        thresholds: ArrayLike = 1.0,
        weights: ArrayLike | None = None,
        n_points: int | None = None,
    ) -> Comparisons:
        """Pairs with y = 1 are closer than their threshold, those with y = −1 farther apart.

        Parameters
        ----------
        pairs : array of shape (m, 2) of row numbers
        y : array of shape (m,), +1 for similar and −1 for dissimilar
        thresholds : positive squared distances; a number or one per pair. For a margin, use lower
            thresholds for similar pairs
        weights, n_points : as in `from_triplets`

        Examples
        --------
        >>> c = Comparisons.from_pairs([[0, 1], [0, 2]], [1, -1], thresholds=4.0)
        >>> c.gaps
        array([-4.,  4.])
        """
        rows = _indices("pairs", pairs, 2)
        similar = are_same(y, len(rows))
        squares = finite("thresholds", thresholds, len(rows))
        assert squares is not None
        if (squares <= 0).any():
            raise ValueError(f"thresholds must be positive; got {squares.min():g}.")
        null = np.zeros_like(rows)
        return cls._from_ends(
            np.where(similar[:, None], rows, null),
            np.where(similar[:, None], null, rows),
            np.where(similar, -squares, squares),
            weights,
            n_points,
        )

    @classmethod
    def from_people(
        cls,
        pairs: ArrayLike,
        people: ArrayLike,
        n_triplets: int,
        *,
        random_state: int | np.random.RandomState | None = None,
    ) -> Comparisons:
        """Two images of a person are closer than an image of another: triplets for verification.

        As in the paper's experiment on faces, (i, j) is a pair of one person, in either order, and
        k an image of another person. `n_triplets` of all such triplets are drawn without
        replacement. Only images in `pairs` are used, so that pairs of other folds stay unseen.

        Parameters
        ----------
        pairs : array of shape (m, 2) of row numbers, of the same person or of two persons
        people : array of shape (n,), the person in each row of X, of any sortable type
        n_triplets : number of triplets
        random_state : seed or generator

        Examples
        --------
        >>> c = Comparisons.from_people([[0, 1], [1, 2]], ["ann", "ann", "bob", "eve"], 2)
        >>> c.pairs[c.near].tolist(), sorted(c.pairs[c.far].tolist())
        ([[0, 1], [0, 1]], [[0, 2], [1, 2]])
        """
        rows, who = _indices("pairs", pairs, 2), Labels.of(people).codes
        triplets = draw_triplets(rows, who, n_triplets, check_random_state(random_state))
        return cls.from_triplets(triplets, n_points=len(who))

    @classmethod
    def _from_ends(
        cls,
        near: NDArray,
        far: NDArray,
        gaps: ArrayLike | None,
        weights: ArrayLike | None,
        n_points: int | None,
    ) -> Comparisons:
        """From near and far pairs, arrays of shape (m, 2); the order within a pair is arbitrary."""
        if len(near) == 0:
            raise ValueError("At least one comparison is required; got none.")
        # One number per pair: low·base + high, and 0 for a point with itself.
        base = int(max(near.max(), far.max())) + 1
        low, high = np.sort(np.concatenate([near, far]), axis=1).T
        keys, inverse = np.unique(np.where(low == high, 0, low * base + high), return_inverse=True)
        positions = inverse.reshape(2, -1)
        if len(same := np.flatnonzero(positions[0] == positions[1])):
            raise ValueError(
                f"The near and far pairs of {len(same)} comparisons are the same; the first is "
                f"comparison {same[0]} with {near[same[0]].tolist()} and {far[same[0]].tolist()}. "
                "No metric satisfies these comparisons; drop them."
            )
        made = cls(
            pairs=np.stack([keys // base, keys % base], axis=1),
            near=positions[0],
            far=positions[1],
            gaps=finite("gaps", gaps, len(near)),
            weights=non_negative("weights", weights, len(near)),
            n_points=n_points,
        )
        if n_points is not None:
            made.check_points(n_points)
        return made

    def __getitem__(self, rows: NDArray | slice) -> Comparisons:
        """A subset of the comparisons."""
        used, inverse = np.unique([self.near[rows], self.far[rows]], return_inverse=True)
        near, far = inverse.reshape(2, -1)
        return replace(
            self,
            pairs=self.pairs[used],
            near=near,
            far=far,
            gaps=None if self.gaps is None else self.gaps[rows],
            weights=None if self.weights is None else self.weights[rows],
        )

    def __add__(self, other: Comparisons) -> Comparisons:
        """All comparisons of both sets, in this order."""
        if not isinstance(other, Comparisons):
            return NotImplemented
        if None not in (self.n_points, other.n_points) and self.n_points != other.n_points:
            raise ValueError(
                f"Comparisons of {self.n_points} and {other.n_points} points cannot be joined."
            )

        def joined(name: str, default: float) -> NDArray | None:
            one, two = getattr(self, name), getattr(other, name)
            if one is None and two is None:
                return None
            one = np.full(len(self), default) if one is None else one
            two = np.full(len(other), default) if two is None else two
            return np.concatenate([one, two])

        return Comparisons._from_ends(
            np.concatenate([self.pairs[self.near], other.pairs[other.near]]),
            np.concatenate([self.pairs[self.far], other.pairs[other.far]]),
            joined("gaps", 0.0),
            joined("weights", 1.0),
            self.n_points if other.n_points is None else other.n_points,
        )

    def counted(self) -> Comparisons:
        """The comparisons with positive weight; raises a ValueError if all weights are 0."""
        if self.weights is None:
            return self
        positive = np.flatnonzero(self.weights > 0)
        if len(positive) == 0:
            raise ValueError("All comparisons have weight 0; at least one must be positive.")
        return self[positive]

    def check_points(self, n_points: int) -> None:
        """Raise a ValueError unless the comparisons refer to a matrix of `n_points` rows."""
        highest = int(self.pairs.max())
        if highest >= n_points:
            raise ValueError(
                f"The comparisons contain row {highest}, but X has {n_points} rows (0 to "
                f"{n_points - 1}). Row numbers refer to the X passed to fit."
            )
        if self.n_points not in (None, n_points):
            raise ValueError(
                f"The comparisons were created for {self.n_points} points, but X has {n_points} "
                "rows. Pass the complete X; a cross-validation split of it has other row numbers."
            )


def _warn_of_missing(labels: Labels, neighbors: NDArray, kind: str) -> None:
    """Warn if points with labels have fewer neighbors than requested, naming a class or set."""
    found, wanted = (neighbors != NONE).sum(axis=1), neighbors.shape[1]
    few = labels.labeled & (found < wanted)
    if few.any():
        worst = int(np.argmin(np.where(few, found, wanted)))
        affected = len(np.unique(labels.codes[few]))
        kinds = "label set(s)" if labels.classes is None else "class(es)"
        warn(
            f"Points of {labels.name(labels.codes[worst])} have {found[worst]} of {wanted} {kind}s "
            f"({affected} {kinds} have too few distinct points). The available ones are used; a "
            "point without targets still serves as an impostor of others."
        )


def _indices(name: str, values: ArrayLike, width: int) -> NDArray:
    """Convert `values` to an integer array (m, width) of row numbers, without null far pairs."""
    rows = np.asarray(values)
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"{name} must have shape (m, {width}); got {rows.shape}.")
    if not np.issubdtype(rows.dtype, np.number) or np.iscomplexobj(rows):
        raise ValueError(f"{name} must contain integer row numbers of X; got {rows.dtype}.")
    if not (np.isfinite(rows).all() and (rows == np.floor(rows)).all()):
        raise ValueError(f"{name} must contain integer row numbers of X; got fractions or NaN.")
    if rows.size and rows.min() < 0:
        raise ValueError(f"{name} must contain row numbers of X, which are >= 0; got {rows.min()}.")
    rows = rows.astype(np.int64)
    # No distance is smaller than 0, that of a point to itself.
    far = rows[:, ::2] if width == 3 else rows[:, -2:]
    if len(itself := np.flatnonzero(far[:, 0] == far[:, 1])):
        first, ends = itself[0], rows[itself[0]].tolist()
        if width == 2:
            raise ValueError(f"Pairs must consist of two points; pair {first} is {ends}.")
        raise ValueError(
            f"The far pair of {len(itself)} comparisons is a point with itself; the first is "
            f"comparison {first}, {ends}. Drop these comparisons."
        )
    return rows
