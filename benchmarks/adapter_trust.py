"""How often `EmbeddingAdapter` recommends what does not help, and finds what does.

    python benchmarks/adapter_trust.py [--runs 100] [--large-runs 30] [--only TEXT …] [--write]

With shuffled labels or judgments, nothing can be learned, and unchanged vectors are right. With
planted gains, the oracle, a projection, raises nDCG@10 by .10 (.095 to .102): some features, which
it drops, are unrelated to the Gaussian classes, and their scale determines the gain (`SIZES` and
`NUISANCE`; `--oracle` prints the gains). Labels are classes; judged are queries and twice as many
documents, and those of the class of a query are relevant.

With duplicates, 10 or 50 % of the queries, documents or labeled points are copies of others, with
the same label or the same judgments, of the same document or of a copy of it. Every second copy
differs from the original by rounding (1e-6).

Each run is a line in adapter_trust.jsonl, so an interrupted run is resumed. `--only` selects cells
whose names contain all of these texts, such as "150x16" or "query". Exits with status 1 if shuffled
data are recommended in more than 8 % of the runs of any cell, or in more than 2 % of all, or if
planted gains are found in less than 80 % of the runs of any cell.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import report
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric import EmbeddingAdapter
from boostmetric.embeddings.search import Map, Maps, Search, same_label

MEASURED = Path(__file__).with_name("adapter_trust.jsonl")
KINDS, SIDES, DUPLICATES = ("labels", "judgments"), ("both", "query"), (0.0, 0.1, 0.5)

NUISANCE = {
    ("labels", "both", 16): 1.45,
    ("labels", "query", 16): 1.89,
    ("labels", "both", 64): 1.09,
    ("labels", "query", 64): 1.15,
    ("labels", "both", 384): 1.48,
    ("labels", "query", 384): 1.49,
    ("judgments", "both", 16): 1.67,
    ("judgments", "query", 16): 3.30,
    ("judgments", "both", 64): 1.20,
    ("judgments", "query", 64): 1.28,
    ("judgments", "both", 384): 1.69,
    ("judgments", "query", 384): 1.69,
}
"""Standard deviation of the features that the oracle drops: its gain is .10."""


class Size(NamedTuple):
    """Generated data.

    `n` queries or labeled points have `D` features. Classes of `per_class` points differ in
    `n_signal` features with standard deviation 1; the standard deviation within classes is `noise`,
    except for `n_nuisance` features, which the oracle drops.
    """

    n: int
    D: int
    per_class: int
    n_signal: int
    noise: float
    n_nuisance: int


SIZES = (
    Size(150, 16, 5, 6, 0.5, 1),
    Size(600, 64, 10, 16, 0.5, 4),
    Size(1500, 384, 15, 64, 0.8, 24),
)


class Cell(NamedTuple):
    """Options of one cell of the table."""

    size: Size
    kind: str
    side: str
    new_documents: bool
    duplicates: float
    planted: bool

    @property
    def name(self) -> str:
        """Name of the cell in the file."""
        data = "planted" if self.planted else "shuffled"
        claim = "new documents" if self.new_documents else "known documents"
        copies = f"{self.duplicates:.0%} duplicates"
        return f"{self.size.n}x{self.size.D} {self.kind} {self.side} {claim} {copies} {data}"


def cells() -> Iterator[Cell]:
    """All cells; planted gains have no duplicates."""
    for size, kind, side, new in product(SIZES, KINDS, SIDES, (False, True)):
        for duplicates in DUPLICATES:
            yield Cell(size, kind, side, new, duplicates, planted=False)
        yield Cell(size, kind, side, new, 0.0, planted=True)


def draw(
    rng: np.random.Generator, size: Size, nuisance: float, n_documents: int
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Draw queries and documents, and the class of each."""
    centers = rng.standard_normal((size.n // size.per_class, size.D))
    centers[:, size.n_signal :] = 0
    drawn = []
    for n in (size.n, n_documents):
        y = np.arange(n) % len(centers)
        X = centers[y] + size.noise * rng.standard_normal((n, size.D))
        X[:, -size.n_nuisance :] = nuisance * rng.standard_normal((n, size.n_nuisance))
        drawn += [X, y]
    Q, y, documents, classes = drawn
    return Q, documents, y, classes


def oracle_gain(size: Size, kind: str, side: str, nuisance: float, n_draws: int) -> float:
    """Mean gain of the oracle in nDCG@10."""
    matrix = np.eye(size.D)
    matrix[-size.n_nuisance :] = 0
    maps = Maps.both(matrix) if side == "both" else Maps(Map(matrix), Map())
    gains = []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        n_documents = size.n if kind == "labels" else 2 * size.n
        Q, documents, y, classes = draw(rng, size, nuisance, n_documents)
        search = Search(Q, documents, same_label(y, classes), np.arange(size.n))
        gains.append(np.mean(search.scores(maps)["ndcg@10"] - search.scores()["ndcg@10"]))
    return float(np.mean(gains))


def copies(rng: np.random.Generator, X: NDArray, share: float) -> tuple[NDArray, NDArray]:
    """X with its last rows replaced by copies of others; the row that each is a copy of."""
    n_kept = len(X) - round(share * len(X))
    source = np.arange(len(X))
    source[n_kept:] = rng.integers(0, n_kept, len(X) - n_kept)
    X = X[source]
    X[n_kept::2] += 1e-6 * rng.standard_normal(X[n_kept::2].shape)
    return X, source


def fit(cell: Cell, seed: int) -> EmbeddingAdapter:
    """Fit the adapter to the data of a cell."""
    rng = np.random.default_rng([seed, cell.size.n])
    n_documents = 2 * cell.size.n
    nuisance = NUISANCE[cell.kind, cell.side, cell.size.D]
    Q, documents, y, classes = draw(rng, cell.size, nuisance, n_documents)
    Q, source = copies(rng, Q, cell.duplicates)
    adapter = EmbeddingAdapter(
        cell.side, new_documents=cell.new_documents, n_jobs=1, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if cell.kind == "labels":
            y = y if cell.planted else rng.permutation(y)
            return adapter.fit(Q, y[source])
        queries, target = same_label(y, classes).nonzero()
        if not cell.planted:
            target = rng.permutation(target)
        # Judgments of the copies of queries, and of random ones of the copies of documents.
        documents, origin = copies(rng, documents, cell.duplicates)
        order, counts = np.argsort(origin, kind="stable"), np.bincount(origin)
        stated = csr_array((np.ones(len(target)), (queries, target)), (len(y), n_documents))
        queries, target = stated[source].nonzero()
        base = origin[target]
        target = order[np.cumsum(counts)[base] - 1 - rng.integers(counts[base])]
        return adapter.fit(Q, documents=documents, judgments=np.column_stack([queries, target]))


def run(cell: Cell, seed: int) -> dict[str, Any]:
    """One run as a line of the file."""
    start = time.process_time()
    adapter = fit(cell, seed)
    found = adapter.selection_
    return {
        "cell": cell.name,
        "run": seed,
        "recommended": adapter.strength_ is not None,
        "gain": round(found.gain, 4),
        "error": round(found.error, 4),
        "seconds": round(time.process_time() - start, 2),
    }


def measured() -> dict[str, dict[int, dict[str, Any]]]:
    """The finished runs of each cell."""
    found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for line in MEASURED.read_text().splitlines() if MEASURED.exists() else ():
        each = json.loads(line)
        found[each["cell"]][each["run"]] = each
    return found


def table(chosen: list[Cell]) -> tuple[str, bool]:
    """Markdown table of the rates, and whether all are as they should be."""
    done = measured()
    lines = [
        "| n × D | data | side | search | shuffled | 10 % duplicates | 50 % duplicates | planted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows: dict[tuple[Any, ...], dict[tuple[float, bool], list[bool]]] = defaultdict(dict)
    for cell in chosen:
        runs = [each["recommended"] for each in done.get(cell.name, {}).values()]
        rows[cell[:4]][cell[4:]] = runs
    shuffled, is_good = [], True
    for (size, kind, side, new), rates in rows.items():
        texts = []
        for key in (*((share, False) for share in DUPLICATES), (0.0, True)):
            runs = rates.get(key, [])
            texts.append(f"{sum(runs)} of {len(runs)}" if runs else "")
            if not key[1]:
                shuffled += runs
                is_good &= sum(runs) <= max(1, 0.08 * len(runs))
            else:
                is_good &= sum(runs) >= 0.8 * len(runs)
        claim = "new documents" if new else "known documents"
        lines.append(f"| {size.n} × {size.D} | {kind} | {side} | {claim} | {' | '.join(texts)} |")
    is_good &= sum(shuffled) <= max(1, 0.02 * len(shuffled))
    rate = 100 * sum(shuffled) / max(1, len(shuffled))
    lines += ["", f"Shuffled data were recommended in {sum(shuffled)} of {len(shuffled)} runs"]
    lines[-1] += f" ({rate:.1f} %)."
    return "\n".join(lines), is_good


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, help="of each cell")
    parser.add_argument("--large-runs", type=int, default=30, help="of each cell of 1500 x 384")
    parser.add_argument("--only", nargs="+", default=[], help="texts in the names of cells")
    parser.add_argument("--oracle", action="store_true", help="print the gains of the oracle")
    parser.add_argument("--write", action="store_true", help="store the table in RESULTS.md")
    options = parser.parse_args()
    if options.oracle:
        for (kind, side, D), nuisance in NUISANCE.items():
            size = next(each for each in SIZES if each.D == D)
            print(kind, side, D, f"{oracle_gain(size, kind, side, nuisance, 10):.3f}")
        return
    chosen = [cell for cell in cells() if all(text in cell.name for text in options.only)]
    done = measured()
    for seed in range(max(options.runs, options.large_runs)):
        for cell in chosen:
            n_runs = options.large_runs if cell.size.n > 1000 else options.runs
            if seed < n_runs and seed not in done[cell.name]:
                with MEASURED.open("a") as file:
                    file.write(json.dumps(run(cell, seed)) + "\n")
    text, is_good = table(chosen)
    print(text)
    if options.write:
        report.write_section("Adapters on shuffled and planted data", "adapter_trust.py", text)
    if not is_good:
        raise SystemExit("Some rates are not as they should be.")


if __name__ == "__main__":
    main()
