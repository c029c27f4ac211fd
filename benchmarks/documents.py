"""Figures and pictures of README.md and of the pages in docs/, from stored measurements.

    BOOSTMETRIC_DATA=folder python benchmarks/documents.py [--stored] [--write]

Prints the text of every block between `<!-- name -->` and `<!-- end of name -->` in README.md or in
a page of docs/; `--write` replaces the blocks, and draws the pictures with the settings and errors
of their examples as metadata. `tests/test_docs.py` compares the pages with the measurements.

| block | measured by |
|---|---|
| circles | examples/plot_circles.py, stored in docs/circles.png |
| cost, adapter, embeddings, solvers | this program, stored in documents.jsonl |
| results | `benchmarks/quality.py --group paper`, stored in quality.jsonl |
| ranks, ratio, baselines | `benchmarks/quality.py` |
| ten points, little data, triplets | `benchmarks/quality.py --group small` |
| harm rates, unfriendly data | `benchmarks/harm.py` |

This program repeats its own measurements if the package has changed, unless `--stored`;
`make figures` runs all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import runpy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import harm
import numpy as np
import points
import processes
import quality
import report
import unfriendly_data
from numpy.typing import NDArray
from processes import Measurements, Record, least

TITLE = "Figures of the documentation"

ROOT = Path(__file__).parents[1]
EXAMPLES, DOCS = ROOT / "examples", ROOT / "docs"
STORED = Path(__file__).with_suffix(".jsonl")

PICTURES = {"plot_circles": ("circles.png", ("settings", "errors"))}
"""Pictures of the pages by example, and the example's variables that are stored with them."""

LIMIT = 300.0
"""Seconds of a measurement."""

EMBEDDINGS = "no learning", "LDA", "BoostMetric(n_components=16)", "BoostMetric()", "adapter"

FIFTEEN = (*quality.SKLEARN, *quality.ELEVEN)

SHOWN = (
    *("dna_splice", "isolet1560", "segment", "spambase"),
    *("breast_cancer", "glass", "waveform21"),
)
"""Datasets of which the page shows results with ten points per class."""

Records = list[dict[str, Any]]


# Measurements -------------------------------------------------------------------------------------


def cost(n: int) -> Record:
    """Seconds of a default fit to n points of MNIST, and of their exact search by scikit-learn."""
    from sklearn.neighbors import NearestNeighbors

    from boostmetric import BoostMetric

    X, y = points.mnist(n)
    search = NearestNeighbors(n_neighbors=4, algorithm="brute")
    # The first of two fits also loads compiled loops.
    return {
        "fit": least(partial(BoostMetric().fit, X, y), repeats=2, enough=LIMIT),
        "search": least(partial(search.fit(X).kneighbors, X), repeats=2, enough=LIMIT),
    }


def embeddings(n_labels: int | None) -> Record:
    """1-NN test errors in percent on banking77, with some or all labels of every intent."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline

    from boostmetric import BoostMetric, EmbeddingAdapter

    with np.load(Path(os.environ["BOOSTMETRIC_DATA"], "banking77.npz"), allow_pickle=False) as data:
        X, X_test = (data[f"{part}_minilm"].astype(np.float32) for part in ("train", "test"))
        y, y_test = data["train_y"], data["test_y"]
    order = np.random.default_rng(0).permutation(len(y))
    rows = np.concatenate([order[y[order] == label][:n_labels] for label in np.unique(y)])
    learners = [
        "passthrough",
        LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
        BoostMetric(n_components=16),
        BoostMetric(),
        EmbeddingAdapter(),
    ]
    errors = {}
    for name, learner in zip(EMBEDDINGS, learners, strict=True):
        model = make_pipeline(learner, KNeighborsClassifier(1)).fit(X[rows], y[rows])
        errors[name] = 100 * (1 - model.score(X_test, y_test))
    return errors


def solvers() -> Record:
    """CPU seconds of fits to digits with each solver and one thread."""
    from sklearn.datasets import load_digits

    from boostmetric import BoostMetric

    X, y = load_digits(return_X_y=True)
    fits = {
        name: partial(BoostMetric(solver=name, n_jobs=1).fit, X, y)
        for name in ("totally_corrective", "auto")
    }
    return {name: least(fit)["cpu"] for name, fit in fits.items()}


def measure(measurements: Measurements) -> None:
    """Store the measurements of this program, unless they are known for this version."""
    n = 2_000 if measurements.is_small else 50_000
    for has_numba in (False, True):
        measurements.get(cost, threads=2, has_numba=has_numba, n=n)
    for n_labels in (20, None):
        measurements.get(embeddings, n_labels=n_labels)
    measurements.get(solvers)


# Pictures -----------------------------------------------------------------------------------------


def digest(example: str) -> str:
    """The hash of the source of an example."""
    return hashlib.sha256((EXAMPLES / f"{example}.py").read_bytes()).hexdigest()[:16]


def draw_pictures() -> None:
    """Run the examples, and save the last figure of each with its metadata."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    for example, (name, variables) in PICTURES.items():
        with patch.object(pyplot, "show"):
            found = runpy.run_path(str(EXAMPLES / f"{example}.py"))
        values = json.dumps({each: found[each] for each in variables})
        metadata = {"digest": digest(example), "values": values}
        pyplot.savefig(DOCS / name, dpi=110, metadata=metadata)
        pyplot.close("all")


def metadata_of(picture: str) -> dict[str, Any]:
    """The digest of the example that drew a picture, and the values of its variables."""
    from PIL import Image

    with Image.open(DOCS / picture) as image:
        return {"digest": image.info["digest"], **json.loads(image.info["values"])}


# Blocks -------------------------------------------------------------------------------------------


def lines_of(path: Path) -> Records:
    return [json.loads(line) for line in path.read_text().splitlines()]


def code(method: str) -> str:
    return f"`{method}`" if method.endswith(")") else method


def emphasized(values: Sequence[float]) -> list[str]:
    """The values with one digit, the lowest in bold."""
    cells = [f"{value:.1f}" for value in values]
    lowest = min(map(float, cells))
    return [f"**{cell}**" if float(cell) == lowest else cell for cell in cells]


def errors_of(records: Records, datasets: Sequence[str], methods: Sequence[str]) -> NDArray:
    """Errors of shape (methods, datasets, splits)."""
    chosen = [each for each in records if each["method"] in methods]
    return quality.values_of(chosen, datasets, methods)


def seconds_of(records: Records, methods: Sequence[str]) -> NDArray:
    """Mean CPU seconds on the tables that the defaults were chosen with."""
    chosen = [each for each in records if each["method"] in methods]
    return np.nanmean(quality.values_of(chosen, FIFTEEN, methods, "seconds"), axis=(1, 2))


def euclidean_and_ours(records: Records, dataset: str) -> list[NDArray]:
    """Errors of the better Euclidean distance and of both defaults, by split."""
    methods = ["raw", "standardized", "BoostMetric()", "BoostMetricCV()"]
    raw, standardized, *ours = errors_of(records, [dataset], methods)[:, 0]
    return [quality.better_of(raw, standardized), *ours]


def error_table(records: Records, datasets: Sequence[str]) -> str:
    """Mean errors of the simple distances and of the defaults."""
    methods = ["raw", "standardized", "LDA", "BoostMetric()", "BoostMetricCV()"]
    means = np.nanmean(errors_of(records, datasets, methods), axis=2).T
    names = [dataset.rpartition("/")[2] for dataset in datasets]
    rows = [[name, *emphasized(row)] for name, row in zip(names, means, strict=True)]
    return f"\n\n{quality.markdown(['', *map(code, methods)], rows)}\n\n"


def of_ranks(records: Records) -> str:
    """Mean ranks and seconds of all methods on the tables that the defaults were chosen with."""
    methods = [*quality.METHODS, *quality.PEERS]
    ranks = quality.mean_ranks(errors_of(records, FIFTEEN, methods))
    shown = [
        f"{code(method)} {rank:.1f} ({time:.2g} s)"
        for rank, time, method in sorted(
            zip(ranks, seconds_of(records, methods), methods, strict=True)
        )
        if method not in ("raw", "standardized", quality.REFERENCE)
    ]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def of_ratio(records: Records) -> str:
    """The cost of a cross-validated fit."""
    once, often = seconds_of(records, ["BoostMetric()", "BoostMetricCV()"])
    return f"about {often / once:.0f} times as long"


def of_ten_points(records: Records) -> str:
    """Errors with ten points per class, and intervals of their differences."""
    rows = []
    for name in SHOWN:
        euclidean, *ours = euclidean_and_ours(records, f"ten/{name}")
        row = emphasized([each.mean() for each in (euclidean, *ours)])
        for position, each in zip((2, 4), ours, strict=True):
            low, high = quality.interval(each - euclidean)
            row.insert(position, f"{low:+.1f} to {high:+.1f}".replace("-", "−"))
        rows.append([name, *row])
    header = ["ten points per class", "better of raw and standardized", "`BoostMetric()`"]
    header += ["95 % interval of the difference", "`BoostMetricCV()`", "95 % interval"]
    return f"\n\n{quality.markdown(header, rows)}\n\n"


def of_little_data(records: Records) -> str:
    """How often the defaults are significantly better and worse than Euclidean distances."""
    datasets = [name for name in quality.GROUPS["small"] if not name.startswith("triplets")]
    intervals = np.array([
        [quality.interval(ours - euclidean) for ours in others]
        for euclidean, *others in (euclidean_and_ours(records, name) for name in datasets)
    ])  # fmt: skip
    better, worse = (intervals[:, :, 1] < 0).sum(axis=0), (intervals[:, :, 0] > 0).sum(axis=0)
    return (
        f"On {len(datasets)} small problems with {quality.N_SMALL_SPLITS} splits each, "
        f"`BoostMetric()` was significantly better than the better of raw and standardized "
        f"features on {better[0]} and worse on {worse[0]}, and `BoostMetricCV()` better on "
        f"{better[1]} and worse on {worse[1]}"
    )


def of_triplets(records: Records) -> str:
    """Violated triplets by the number of triplets for learning."""
    methods = ["raw", "BoostMetric()", "BoostMetricCV()", quality.ITML]
    datasets = [f"triplets 400/{name}" for name in quality.SIX]
    means = np.nanmean(errors_of(records, datasets, methods), axis=2).T
    rows = [[name, *emphasized(row)] for name, row in zip(quality.SIX, means, strict=True)]
    header = ["400 triplets", "standardized", *map(code, methods[1:])]
    return f"\n\n{quality.markdown(header, rows)}\n\n"


def of_circles() -> str:
    """Errors by the number of training points."""
    errors: dict[str, dict[str, float]] = metadata_of("circles.png")["errors"]
    sizes = list(errors["BoostMetric"])
    rows = [[size, *(f"{each[size]:.1f}" for each in errors.values())] for size in sizes]
    return f"\n\n{quality.markdown(['training points', *errors], rows)}\n\n"


def latest(records: Iterable[Record], function: Callable[..., Any], **request: Any) -> Record:
    """The last of the records of a function with this request."""
    found = [
        each
        for each in records
        if each["request"]["function"] == function.__name__
        and request.items() <= {**each["request"], **each["request"]["arguments"]}.items()
    ]
    return found[-1]


def of_cost(records: list[Record]) -> str:
    """Seconds of a default fit without and with numba, also in units of a search."""
    plain, fast = (latest(records, cost, has_numba=each) for each in (False, True))
    shares = [each["fit"]["wall"] / each["search"]["wall"] for each in (plain, fast)]
    return (
        f"takes {plain['fit']['wall']:.1f} s on two cores without optional packages, "
        f"{shares[0]:.2f} times the time of one exact search for their nearest neighbors by "
        f"scikit-learn; with numba, {fast['fit']['wall']:.1f} s ({shares[1]:.2f} times)"
    )


def of_embeddings(records: list[Record]) -> str:
    """Errors with 20 and with all labels."""
    rows = []
    for title, n_labels in (("20 labels per intent", 20), ("all 10,003 labels", None)):
        errors = latest(records, embeddings, n_labels=n_labels)
        rows.append([title, *emphasized([errors[name] for name in EMBEDDINGS])])
    header = ["1-NN test error in %", *map(code, EMBEDDINGS[:-1]), "`EmbeddingAdapter()`"]
    return f"\n\n{quality.markdown(header, rows)}\n\n"


def of_adapter(records: list[Record]) -> str:
    """Errors without and with an adapter, with 20 and with all labels."""
    few, every = (latest(records, embeddings, n_labels=n_labels) for n_labels in (20, None))
    return (
        f"from {few['no learning']:.1f} to {few['adapter']:.1f} % with 20 labels per intent, and "
        f"from {every['no learning']:.1f} to {every['adapter']:.1f} % with 130"
    )


def of_solvers(records: list[Record]) -> str:
    """CPU seconds with both solvers."""
    seconds = latest(records, solvers)
    return (
        f"{seconds['totally_corrective']:.1f} s of CPU time, and the default solver takes "
        f"{seconds['auto']:.1f} s"
    )


def blocks() -> dict[str, str]:
    """The text of every block by its name, from the stored measurements."""
    of_quality, stored = lines_of(quality.MEASURED), lines_of(STORED)
    # A few datasets have more splits, for comparisons with little data.
    ten_splits = [each for each in of_quality if each["seed"] < quality.N_SPLITS]
    return {
        "circles": of_circles(),
        "cost": of_cost(stored),
        "adapter": of_adapter(stored),
        "embeddings": of_embeddings(stored),
        "solvers": of_solvers(stored),
        "results": error_table(ten_splits, quality.GROUPS["paper"]),
        "ranks": of_ranks(ten_splits),
        "ratio": of_ratio(ten_splits),
        "baselines": error_table(ten_splits, FIFTEEN),
        "ten points": of_ten_points(of_quality),
        "little data": of_little_data(of_quality),
        "triplets": of_triplets(of_quality),
        **of_harm(),
    }


def of_harm() -> dict[str, str]:
    """How often fits are worse than their starts, and errors on unfriendly data."""
    records = harm.read()
    before = next(each["version"] for each in records if each["version"] != harm.CURRENT)
    kinds = [*unfriendly_data.KINDS, *harm.TABLES, *unfriendly_data.PLANTED]
    rates = harm.harm_rates(records, kinds, [before, harm.CURRENT])
    errors = harm.before_and_after(records, [*unfriendly_data.KINDS], before)
    return {"harm rates": f"\n\n{rates}\n\n", "unfriendly data": f"\n\n{errors}\n\n"}


def pages() -> list[Path]:
    """README.md and the pages of docs/ without generated ones."""
    return [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def table(measurements: Measurements, given: argparse.Namespace) -> str:
    """All blocks, which are also written to the pages."""
    if not given.stored:
        measure(measurements)
    if given.write:
        draw_pictures()
        for page, (name, text) in product(pages(), blocks().items()):
            report.replace_block(page, name, text)
    return "\n\n".join(f"**{name}**\n\n{text.strip()}" for name, text in blocks().items())


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stored", action="store_true", help="measure nothing")


if __name__ == "__main__":
    functions = {each.__name__: each for each in (cost, embeddings, solvers)}
    processes.main(TITLE, __file__, functions, table, LIMIT, add_options)
