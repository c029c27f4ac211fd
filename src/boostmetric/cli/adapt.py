"""The commands `adapt fit`, `adapt apply`, `adapt report` and `adapt export`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from boostmetric.cli import options as o
from boostmetric.cli.console import CommandError, UsageError, command, say, show

if TYPE_CHECKING:
    from boostmetric.embeddings import EmbeddingAdapter

adapt = typer.Typer(
    help="Improve a search with embeddings: learn a linear map, evaluate it, and export it.",
    epilog="Example: boostmetric adapt report vectors.npy --labels labels.csv --html page.html",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Vectors = Annotated[
    Path | None,
    typer.Argument(
        exists=True, dir_okay=False, metavar="VECTORS", help="Labeled vectors, an .npy file."
    ),
]
Labels = Annotated[
    Path | None,
    o.input_file(help="Labels of VECTORS: .npy, or a table whose last column is the label."),
]
Queries = Annotated[Path | None, o.input_file(help="Vectors of the queries, an .npy file.")]
Documents = Annotated[Path | None, o.input_file(help="Vectors of the documents, an .npy file.")]
Judgments = Annotated[
    Path | None,
    o.input_file(
        help="Judged documents: .csv or .tsv with the columns query, document and, unless they are "
        "clicks, grade; any other file is in the format of TREC qrels."
    ),
]
QueryIds = Annotated[
    Path | None,
    o.input_file(help="Ids of the queries, one per line. By default row numbers, from 0."),
]
DocumentIds = Annotated[
    Path | None, o.input_file(help="Ids of the documents, one per line, as for --query-ids.")
]
Side = Annotated[
    Literal["auto", "both", "query"],
    typer.Option(help="Map both sides, or queries only; auto: queries only for judgments."),
]
Similarity = Annotated[
    Literal["cosine", "euclidean"], typer.Option("--metric", help="Similarity of the search.")
]
Dimensions = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Number of dimensions of the result.")
]
NewDocuments = Annotated[
    bool,
    typer.Option("--new-documents", help="The search will contain new documents or classes."),
]
Adapter = Annotated[Path, o.argument(metavar="ADAPTER", help="File written by `adapt fit`.")]
Format = Annotated[
    Literal["numpy", "safetensors", "onnx", "faiss", "sentence-transformers"],
    typer.Option(metavar="NAME", help="numpy, safetensors, onnx, faiss, sentence-transformers."),
]


@command(adapt, "adapt fit vectors.npy --labels labels.csv -o adapter.npz")
def fit(
    output: Annotated[Path, o.output_file(help="File for the adapter.")],
    vectors: Vectors = None,
    labels: Labels = None,
    queries: Queries = None,
    documents: Documents = None,
    judgments: Judgments = None,
    query_ids: QueryIds = None,
    document_ids: DocumentIds = None,
    side: Side = "auto",
    metric: Similarity = "cosine",
    dimensions: Dimensions = None,
    new_documents: NewDocuments = False,
    base_model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the embedding model, stored in the file."),
    ] = None,
    seed: o.Seed = 0,
    jobs: o.Jobs = None,
    force: o.Force = False,
) -> None:
    """Learn an adapter from labels or judged documents.

    If held-out queries do not show a reliable gain, the adapter does not change the vectors.
    """
    inputs = _inputs(vectors, labels, queries, documents, judgments, query_ids, document_ids)
    params = _params(side, metric, dimensions, new_documents, seed, jobs)
    adapter = _fitted(inputs, params)
    adapter.save(output, base_model)
    if adapter.strength_ is not None:  # otherwise it is a warning
        say(adapter.message_)
    say(f"Saved {output}.")


@command(adapt, "adapt report vectors.npy --labels labels.csv --html page.html")
def report(
    vectors: Vectors = None,
    labels: Labels = None,
    queries: Queries = None,
    documents: Documents = None,
    judgments: Judgments = None,
    query_ids: QueryIds = None,
    document_ids: DocumentIds = None,
    texts: Annotated[
        Path | None, o.input_file(help="Texts of the queries (or of VECTORS), one per line.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(dir_okay=False, metavar="FILE", help="Also write a web page.")
    ] = None,
    side: Side = "auto",
    metric: Similarity = "cosine",
    dimensions: Dimensions = None,
    new_documents: NewDocuments = False,
    seed: o.Seed = 0,
    jobs: o.Jobs = None,
    force: o.Force = False,
    json: o.Json = False,
) -> None:
    """Will an adapter help? Compare it with baselines on held-out queries.

    Takes several times as long as `adapt fit`.
    """
    inputs = _inputs(vectors, labels, queries, documents, judgments, query_ids, document_ids)
    lines = None if texts is None else _lines(texts)
    if lines is not None and len(lines) != len(inputs["X"]):
        raise CommandError(
            f"{texts} has {len(lines)} lines, but there are {len(inputs['X'])} rows."
        )
    params = _params(side, metric, dimensions, new_documents, seed, jobs)
    adapter = _fitted(inputs, params)
    with _progress("Evaluating"):
        found = adapter.report_
    if html is not None:
        from boostmetric._files import atomic_write

        with atomic_write(html) as temporary:
            temporary.write_text(found.to_html(lines), encoding="utf-8")
        say(f"Saved {html}.")
    if json:
        print(found.to_json())
    else:
        show(found.to_text(lines))


@command(adapt, "adapt apply adapter.npz queries.npy -o mapped.npy")
def apply(
    adapter: Adapter,
    vectors: Annotated[Path, o.argument(metavar="VECTORS", help="Vectors, an .npy file.")],
    output: Annotated[Path, o.output_file(help="An .npy file for the result.")],
    documents: Annotated[
        bool, typer.Option("--documents", help="VECTORS are documents, not queries.")
    ] = False,
    force: o.Force = False,
) -> None:
    """Map vectors with an adapter."""
    import numpy as np

    from boostmetric._files import atomic_write
    from boostmetric.embeddings import EmbeddingAdapter

    learned = EmbeddingAdapter.load(adapter)
    X = _load(vectors)
    mapped = learned.transform_documents(X) if documents else learned.transform(X)
    with atomic_write(output) as temporary, open(temporary, "wb") as file:
        np.save(file, mapped)
    say(f"Saved {output}: {mapped.shape[0]} vectors, {mapped.shape[1]} dimensions.")


@command(adapt, "adapt export adapter.npz --format onnx -o adapter.onnx")
def export(
    adapter: Adapter,
    format: Format,
    output: Annotated[Path, o.output_file(help="File, or folder, for the result.")],
    side: Annotated[
        Literal["both", "query"] | None,
        typer.Option(help="Fail unless the adapter maps this side."),
    ] = None,
    base_model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the embedding model, stored in the file."),
    ] = None,
    force: o.Force = False,
) -> None:
    """Write an adapter in the format of another program."""
    from boostmetric.embeddings import EmbeddingAdapter
    from boostmetric.embeddings.exports import export as write

    write(EmbeddingAdapter.load(adapter), output, format, base_model=base_model, side=side)
    say(f"Saved {output}.")


def _params(
    side: str,
    metric: str,
    dimensions: int | None,
    new_documents: bool,
    seed: int,
    jobs: int | None,
) -> dict[str, Any]:
    return {
        "side": side,
        "metric": metric,
        "n_components": dimensions,
        "new_documents": new_documents,
        "random_state": seed,
        "n_jobs": jobs,
    }


def _fitted(inputs: dict[str, Any], params: dict[str, Any]) -> EmbeddingAdapter:
    from boostmetric.embeddings import EmbeddingAdapter

    with _progress("Learning"):
        return EmbeddingAdapter(**params).fit(**inputs)


def _inputs(
    vectors: Path | None,
    labels: Path | None,
    queries: Path | None,
    documents: Path | None,
    judgments: Path | None,
    query_ids: Path | None,
    document_ids: Path | None,
) -> dict[str, Any]:
    """Read the arguments of `EmbeddingAdapter.fit`."""
    if (vectors is None) != (labels is None):
        raise UsageError("VECTORS and --labels must be used together.")
    given = [each is not None for each in (queries, documents, judgments)]
    if any(given) == (vectors is not None) or (any(given) and not all(given)):
        raise UsageError(
            "Use either VECTORS and --labels, or --queries, --documents and --judgments."
        )
    if vectors is not None and labels is not None:
        X, y = _load(vectors), _read_labels(labels)
        if len(y) != len(X):
            raise CommandError(f"{labels} has {len(y)} labels, but {vectors} has {len(X)} vectors.")
        return {"X": X, "y": y}
    assert queries is not None
    assert documents is not None
    assert judgments is not None
    X, searched = _load(queries), _load(documents)
    rows = _read_judgments(judgments)
    for column, (kind, path, n) in enumerate(
        (("query", query_ids, len(X)), ("document", document_ids, len(searched)))
    ):
        rows[column] = _positions(rows[column], kind, path, n, judgments)
    import numpy as np

    return {"X": X, "documents": searched, "judgments": np.stack(list(rows.values()), axis=1)}


def _load(path: Path) -> Any:
    """Open the vectors in an .npy file, memory-mapped."""
    import numpy as np

    from boostmetric.cli.tables import read_arrays

    vectors = read_arrays(path, mmap_mode="r")
    is_numeric = isinstance(vectors, np.ndarray) and vectors.dtype.kind in "biuf"
    if not is_numeric or vectors.ndim != 2:
        raise CommandError(f"{path} must contain one array of numbers, of shape (n, dimensions).")
    return vectors


def _lines(path: Path) -> list[str]:
    from boostmetric.cli.tables import errors_of

    with errors_of(path):
        return path.read_text(encoding="utf-8").splitlines()


def _read_labels(path: Path) -> Any:
    import numpy as np
    import pandas as pd

    from boostmetric.cli.tables import errors_of, read_arrays

    if path.suffix == ".npy":
        labels = read_arrays(path)
        if not isinstance(labels, np.ndarray) or labels.ndim == 0:
            raise CommandError(f"{path} must contain one array of labels, of shape (n,).")
        return labels
    with errors_of(path):
        table = pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",", dtype=str)
    return table.iloc[:, -1].to_numpy()


def _read_judgments(path: Path) -> dict[int, Any]:
    """Read the columns query, document and, if any, grade: ids are str, grades are numbers."""
    import pandas as pd

    from boostmetric.cli.tables import errors_of

    separator = {".csv": ",", ".tsv": "\t"}.get(path.suffix, r"\s+")
    with errors_of(path):
        table = pd.read_csv(path, sep=separator, header=None, dtype=str, keep_default_na=False)
    if table.shape[1] == 4:  # TREC qrels: query, iteration, document, grade
        table = table.drop(columns=1)
    if table.shape[1] not in (2, 3):
        raise CommandError(
            f"{path} has {table.shape[1]} columns. Expected are query, document and grade; query "
            "and document; or the four columns of TREC qrels."
        )
    table.columns = pd.RangeIndex(table.shape[1])
    if table.shape[1] == 2:
        has_header = table.iloc[0, 0].lower().startswith("query")
    else:
        has_header = pd.to_numeric(table.iloc[:1, 2], errors="coerce").isna().any()
    table = table.iloc[1:] if has_header else table
    columns: dict[int, Any] = {0: table[0].to_numpy(), 1: table[1].to_numpy()}
    if table.shape[1] == 3:
        grades = pd.to_numeric(table[2], errors="coerce")
        if grades.isna().any():
            raise CommandError(
                f"{path}: {int(grades.isna().sum())} grades are not numbers, such as "
                f"{table[2][grades.isna()].iloc[0]!r}."
            )
        columns[2] = grades.to_numpy(dtype=float)
    return columns


def _positions(ids: Any, kind: str, path: Path | None, n: int, judgments: Path) -> Any:
    """Return the row numbers of ids."""
    import pandas as pd

    known = list(map(str, range(n))) if path is None else _lines(path)
    if len(known) != n:
        raise CommandError(f"{path} has {len(known)} ids, but there are {n} vectors.")
    index = pd.Index(known)
    if not index.is_unique:
        raise CommandError(
            f"{path} has duplicated ids, such as {known[index.duplicated().argmax()]}."
        )
    positions = index.get_indexer(ids)
    if (missing := positions < 0).any():
        source = f"row numbers from 0 to {n - 1}" if path is None else str(path)
        raise CommandError(
            f"{judgments}: {int(missing.sum())} judgments have a {kind} without a vector, such as "
            f"{ids[missing][0]!r}. Ids of a {kind} are {source}."
        )
    return positions.astype(float)


@contextmanager
def _progress(text: str) -> Iterator[None]:
    """Show a bar with the number of finished folds, in a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from boostmetric.embeddings.selection import listening

    console = Console(stderr=True)
    if not console.is_terminal:  # even a disabled bar would print an empty line
        yield
        return
    columns = (TextColumn(text), BarColumn(), TextColumn("{task.fields[folds]}"))
    bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
    task = bar.add_task(text, total=None, folds="")

    def update(n_done: int, n_folds: int) -> None:
        # After the folds, the adapter is learned from all data.
        folds = f"fold {n_done + 1} of {n_folds}"
        bar.update(task, completed=n_done, total=n_folds + 1, folds=folds)

    with bar, listening(update):
        yield
