"""EmbeddingAdapter, the scikit-learn estimator."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from boostmetric._files import FileFormatError, load_arrays, save_arrays
from boostmetric._validation import SEED, check_parameter, is_count, is_real, is_seed, warn
from boostmetric.data.labels import check_labels, single_labels
from boostmetric.embeddings.query_side import nearest_documents
from boostmetric.embeddings.report import Report, make_report
from boostmetric.embeddings.search import Map, as_grades, as_vectors
from boostmetric.embeddings.selection import learn_at, select
from boostmetric.embeddings.training import Compared, Judged, Labeled, Training
from boostmetric.engines import single_blas_thread
from boostmetric.estimators.splits import seed_of
from boostmetric.evaluation.ranking import METRICS, normalized
from boostmetric.problem import Comparisons

SIDES = ("auto", "both", "query")

ADAPTER_FORMAT_VERSION = 1
"""Version of the file format."""

MIN_NEW_CLASSES = 4
"""Half of them are searched among each other, and half are learned from."""

MAX_FOLD_WORK = 3 * 10**9
"""Scores times features up to which there are 5 folds; 3 up to 10 times as many, then a single
held-out part. A fold of SciFact, half of this, takes 14 seconds on one core."""


class EmbeddingAdapter(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Improve a search with embeddings by a linear map, if the data show that it helps.

    Learns from labels, from judged documents or clicks, or from comparisons. The strength of the
    adapter is cross-validated, and the identity is always a candidate: unless the gain in nDCG@10
    exceeds 2.5 standard errors (more with few independent units) on queries that did not choose the
    strength, vectors are not changed, and a warning says so. Equal and nearly equal vectors are in
    the same fold.

    Parameters
    ----------
    side : {"auto", "both", "query"}, default="auto"
        "both" maps queries and documents with the same matrix L. LᵀL ⪰ 0 is learned by
        `BoostMetric`; with labels, it is the average of this, shrunk discriminant axes, and a
        refinement of both (`both_sides`). It is moved toward the identity. "query" maps queries
        only, so documents stay as indexed (`query_side`). "auto" is "query" for judgments and
        "both" otherwise.
    metric : {"cosine", "euclidean"}, default="cosine"
        Similarity of the search. With "cosine", results have unit length, so that the inner product
        is the cosine.
    n_components : int or None, default=None
        Number of dimensions of the mapped vectors, for `side="both"`; None keeps all. The baseline
        is then a projection on the leading axes of the vectors.
    new_documents : bool, default=False
        Whether the search will contain documents without judgments (or classes without labels) in
        the training data. If True, cross-validation holds out documents (or classes), too, and
        searches only among these. At least four classes are required.
    cv : int or None, default=None
        Number of folds; 1 holds out a fifth once. None uses 5, and fewer for large data.
    n_jobs : int or None, default=None
        Number of threads, as for `BoostMetric`.
    random_state : int, RandomState or None, default=0
        Determines the folds, by hashes of the contents of vectors, so that neither the order of
        rows nor the names of classes matter; None is 0.

    Attributes
    ----------
    components_ : array of shape (n_components, D)
        Queries are mapped to X·components_ᵀ; documents, too, if `side_` is "both".
    side_ : {"both", "query"}
    strength_ : float or None
        The selected strength; None if the vectors are not changed.
    selection_ : Selection
        Gains of all candidates with standard errors.
    message_ : str
        One sentence about the selection.
    report_ : Report
        Comparison with baselines on queries used neither for fitting nor for selection. Computed on
        first access, which takes several times as long as `fit`. Not available after pickling,
        unless it was computed before.
    n_features_in_ : int
        Number of dimensions D.

    See Also
    --------
    BoostMetric : The metric learner behind `side="both"`.

    Examples
    --------
    Three of eight dimensions tell the classes apart; the others are noise:

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 5, 300)
    >>> X = rng.normal(size=(300, 8))
    >>> X[:, :3] = 2 * rng.normal(size=(5, 3))[y] + X[:, :3] / 2
    >>> adapter = EmbeddingAdapter().fit(X, y)
    >>> print(adapter.message_)
    The adapter changes ndcg@10 from 0.9... by +0.0... on 300 held-out queries.
    >>> adapter.transform(X).shape
    (300, 8)

    Judged documents: rows (query, document, grade). With random judgments, nothing can be learned:

    >>> import warnings
    >>> judgments = np.stack([np.arange(100), rng.integers(0, 300, 100), np.ones(100)], axis=1)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     adapter = EmbeddingAdapter().fit(X[:100], documents=X, judgments=judgments)
    >>> adapter.side_, adapter.strength_
    ('query', None)
    """

    components_: NDArray
    side_: str

    def __init__(
        self,
        side: str = "auto",
        *,
        metric: str = "cosine",
        n_components: int | None = None,
        new_documents: bool = False,
        cv: int | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.side = side
        self.metric = metric
        self.n_components = n_components
        self.new_documents = new_documents
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    @single_blas_thread()  # threads of BLAS wait for each other in products of small matrices
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        documents: ArrayLike | None = None,
        judgments: Any = None,
        comparisons: Comparisons | ArrayLike | None = None,
    ) -> Self:
        """Learn from labels, from judged documents, or from comparisons.

        Parameters
        ----------
        X : array of shape (n, D), float16, float32 or float64: labeled or compared vectors, or the
            queries
        y : array of shape (n,), labels of the rows of X
        documents : array of shape (N, D); may be memory-mapped
        judgments : array of shape (m, 3), rows (query, document, grade) with row numbers of X and
            `documents`; array of shape (m, 2), clicks (query, document); or a sparse array of
            grades, of shape (n, N). Grades > 0 are relevant
        comparisons : Comparisons of the rows of X, or triplets of shape (m, 3): row a is closer to
            row b than to row c

        Returns
        -------
        self
        """
        # 1) data
        self.__dict__.pop("report_", None)
        data = self._training(X, y, documents, judgments, comparisons)
        self._data: Training | None = data
        self.side_ = data.side

        # 2) strength, or the identity
        self.selection_ = select(data, self._n_folds(data))
        fallback = "identity"
        if self.n_components is not None:
            fallback = "projection on the leading axes"
        self.message_ = self.selection_.message(data.measure, fallback)
        chosen = self.selection_.chosen
        self.strength_ = None if chosen is None else data.strengths[chosen]
        if chosen is None:
            warn(self.message_)
        maps = learn_at(data, chosen)

        # 3) result
        found = maps.queries.matrix
        D = data.vectors.shape[1]
        dtype = data.vectors.dtype
        self.components_ = (np.eye(D) if found is None else found).astype(dtype)
        return self

    def _training(
        self, X: Any, y: Any, documents: Any, judgments: Any, comparisons: Any
    ) -> Training:
        """Check parameters and data, before any work."""
        # 1) parameters
        for name, names in (("side", SIDES), ("metric", METRICS)):
            value = getattr(self, name)
            expected = f"one of {{{', '.join(map(repr, names))}}}"
            check_parameter(name, value, value in names, expected)
        for name in ("n_components", "cv"):
            value = getattr(self, name)
            is_valid = value is None or is_count(value)
            check_parameter(name, value, is_valid, "None or an int in the range [1, inf)")
        check_parameter("random_state", self.random_state, is_seed(self.random_state), SEED)
        kinds = [y is not None, judgments is not None, comparisons is not None]
        if sum(kinds) != 1:
            raise ValueError(
                "requires y to be passed, but the target y is None; or else judgments, or "
                "comparisons. Exactly one of the three is required."
            )
        if (documents is None) != (judgments is None):
            raise ValueError("documents and judgments must be passed together; one is None.")
        side = self.side if self.side != "auto" else "query" if judgments is not None else "both"
        if side == "query" and comparisons is not None:
            raise ValueError(
                "side='query' requires labels or judgments, because comparisons do not state which "
                "rows are queries. Use side='both'."
            )
        if side == "query" and self.n_components is not None:
            raise ValueError(
                "n_components requires side='both': documents that stay as indexed keep their "
                f"dimensions. Got n_components={self.n_components}."
            )

        # 2) vectors
        vectors = self._vectors(X, reset=True)
        D = vectors.shape[1]
        if self.n_components is not None and self.n_components > D:
            raise ValueError(f"n_components={self.n_components} exceeds the {D} dimensions of X.")
        seed = seed_of(self.random_state)
        shared: dict[str, Any] = {
            "metric": self.metric,
            "side": side,
            "n_components": self.n_components,
            "unseen": bool(self.new_documents),
            "n_jobs": self.n_jobs,
            "seed": seed,
        }

        # 3) what they should be like
        if y is not None:
            labels = single_labels(y)
            check_consistent_length(vectors, labels)
            codes = check_labels(labels)[0].codes
            n_classes = len(np.unique(codes))
            if self.new_documents and n_classes < MIN_NEW_CLASSES:
                raise ValueError(
                    f"new_documents=True requires at least {MIN_NEW_CLASSES} classes, because two "
                    f"are held out while the others are learned from; y has {n_classes}. Use "
                    "new_documents=False, or labels of finer classes."
                )
            return Labeled(**shared, X=vectors, y=codes, rows=np.arange(len(vectors)))
        if comparisons is not None:
            given = comparisons
            if not isinstance(given, Comparisons):
                given = Comparisons.from_triplets(np.asarray(comparisons))
            given.check_points(len(vectors))
            return Compared(**shared, X=vectors, comparisons=given.counted())
        searched = as_vectors(documents, "documents", self.metric)
        if searched.shape[1] != D:
            raise ValueError(
                f"documents have {searched.shape[1]} dimensions, but X (the queries) has {D}. Use "
                "the same embedding model for both."
            )
        dtype = np.result_type(vectors, searched)
        vectors, searched = (each.astype(dtype, copy=False) for each in (vectors, searched))
        grades = as_grades(judgments, len(vectors), len(searched))
        rows = np.flatnonzero(np.diff(grades.indptr))
        queries, nearest = vectors[rows], None
        if side == "query":
            nearest = nearest_documents(queries, searched, self.n_jobs, seed)
        return Judged(
            **shared,
            queries=queries,
            documents=searched,
            grades=grades[rows],
            rows=rows,
            nearest=nearest,
        )

    def _vectors(self, X: Any, reset: bool) -> NDArray:
        """Check X, its number of dimensions, and the names of its columns."""
        vectors = as_vectors(X, "X", self.metric)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if reset and len(vectors) < 2:
            raise ValueError(f"Found array with {len(vectors)} sample(s); at least 2 are required.")
        return vectors

    def _n_folds(self, data: Training) -> int:
        if self.cv is not None:
            return int(self.cv)
        work = data.n_units * len(data.vectors) * data.vectors.shape[1]
        return 5 if work <= MAX_FOLD_WORK else 3 if work <= 10 * MAX_FOLD_WORK else 1

    def transform(self, X: ArrayLike) -> NDArray:
        """Map queries, or labeled vectors, of shape (n, D).

        Returns
        -------
        array of shape (n, n_components), in float32 or float64; of unit length with cosine
        """
        check_is_fitted(self, "components_")
        return self._map(X, self.components_)

    def transform_documents(self, X: ArrayLike) -> NDArray:
        """Map documents; with `side="query"` they are only normalized, if the metric is cosine."""
        check_is_fitted(self, "components_")
        return self._map(X, self.components_ if self.side_ == "both" else None)

    def _map(self, X: ArrayLike, matrix: NDArray | None) -> NDArray:
        mapped = Map(matrix)(self._vectors(X, reset=False))
        return normalized(mapped) if self.metric == "cosine" else mapped

    @cached_property
    def report_(self) -> Report:
        """Comparison with baselines; see the class."""
        check_is_fitted(self, "components_")
        if self._data is None:
            raise AttributeError(
                "report_ is not available: it was not computed before the adapter was saved. Fit "
                "the adapter again, and use report_ first."
            )
        with single_blas_thread():
            return make_report(self._data, self._n_folds(self._data), self.strength_ is not None)

    def save(self, path: str | os.PathLike[str], base_model: str | None = None) -> None:
        """Write the adapter to a .npz file, atomically; `exports.export` writes other formats."""
        check_is_fitted(self, "components_")
        facts = {
            **{name: getattr(self, name) for name in ("metric", "new_documents", "side_")},
            "strength": self.strength_,
            "message": self.message_,
            "base_model": base_model,
        }
        arrays = {"components": self.components_}
        save_arrays(path, "adapter", ADAPTER_FORMAT_VERSION, facts, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> EmbeddingAdapter:
        """Read an adapter from a file written by `save`. Nothing in the file is executed."""
        facts, arrays = load_arrays(path, "adapter", ADAPTER_FORMAT_VERSION)
        try:
            L = arrays["components"]
            d, D = L.shape
            side, strength = facts["side_"], facts["strength"]
            is_valid = {
                "side_": side in SIDES[1:],
                "metric": facts["metric"] in METRICS,
                "new_documents": isinstance(facts["new_documents"], bool),
                "strength": strength is None or is_real(strength),
                "message": isinstance(facts["message"], str),
                "components": L.dtype.kind == "f"
                and bool(np.isfinite(L).all())
                and (d == D if side == "query" else 1 <= d <= D),
            }
            if not all(is_valid.values()):
                invalid = ", ".join(name for name, valid in is_valid.items() if not valid)
                raise ValueError(f"invalid {invalid}")
            adapter = cls(
                side,
                metric=facts["metric"],
                n_components=d if d < D else None,
                new_documents=facts["new_documents"],
            )
            adapter.components_, adapter.side_ = L, side
            adapter.strength_, adapter.message_ = strength, facts["message"]
            adapter.n_features_in_ = D
            adapter._data = None
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{path} does not contain a valid adapter ({error}).") from error
        return adapter

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __getstate__(self) -> dict[str, Any]:
        """The training data are not pickled."""
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_data": None} if "_data" in state else state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
