"""Files with which other programs apply an adapter."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from boostmetric._files import atomic_write
from boostmetric._validation import check_parameter
from boostmetric._version import __version__
from boostmetric.embeddings.adapter import EmbeddingAdapter


def export(
    adapter: EmbeddingAdapter,
    path: str | os.PathLike[str],
    format: str,
    *,
    base_model: str | None = None,
    side: str | None = None,
) -> None:
    """Write the map x ↦ components_·x, followed by a division by the length if it is for cosine.

    All formats are in float32, except "numpy". Documents are mapped in the same way if `side_` is
    "both", and stay as indexed if it is "query".

    Parameters
    ----------
    adapter : fitted
    path : file to write; for "sentence-transformers", a new folder
    format : "numpy" (`EmbeddingAdapter.load` reads it), "safetensors" (the array "components", with
        metadata), "onnx" (input "X", output "transformed"), "faiss" (an empty index, see
        `to_faiss`), or "sentence-transformers" (a folder with a Dense module without bias)
    base_model : name of the embedding model, stored in the metadata
    side : "both" or "query"; raises a ValueError unless the adapter is of this side

    Examples
    --------
    >>> import tempfile
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 4)) * [1, 1, 3, 3], rng.integers(0, 3, 200)
    >>> X[:, :2] += np.array([[4, 0], [0, 4], [-4, -4]])[y]
    >>> adapter = EmbeddingAdapter().fit(X, y)
    >>> path = Path(tempfile.mkdtemp(), "adapter.npz")
    >>> export(adapter, path, "numpy", base_model="my-model")
    >>> bool(np.allclose(EmbeddingAdapter.load(path).transform(X), adapter.transform(X)))
    True
    """
    expected = f"one of {{{', '.join(map(repr, WRITERS))}}}"
    check_parameter("format", format, format in WRITERS, expected)
    check_is_fitted(adapter, "components_")
    if side == "query" and adapter.side_ == "both":
        raise ValueError(
            "This adapter maps both sides, and cannot be exported as a map of the queries: the "
            "length ‖Ld‖ of each mapped document d enters the ranking, and it differs between "
            "documents. Map and index the documents again, or fit with side='query'."
        )
    if side == "both" and adapter.side_ == "query":
        raise ValueError(
            "This adapter maps queries only; its documents stay as indexed. Fit with side='both' "
            "to map both."
        )
    WRITERS[format](adapter, Path(path), base_model)


def metadata(adapter: EmbeddingAdapter, base_model: str | None) -> dict[str, Any]:
    """What a reader of the file has to know."""
    d, D = adapter.components_.shape
    return {
        "base_model": base_model,
        "in_dimensions": D,
        "out_dimensions": d,
        "side": adapter.side_,
        "metric": adapter.metric,
        "normalize": adapter.metric == "cosine",
        "boostmetric": __version__,
    }


def to_faiss(adapter: EmbeddingAdapter, index: Any = None) -> Any:
    """A FAISS index that maps vectors before it searches.

    Parameters
    ----------
    adapter : fitted
    index : a FAISS index of vectors that are mapped already, or, for an adapter of the queries, the
        index in use; by default an exact one without vectors

    Returns
    -------
    `faiss.IndexPreTransform`. Its `search` maps queries. Its `add` maps documents, so with an
    adapter of the queries add documents to `index` instead, or to `faiss.downcast_index(…index)`
    """
    try:
        import faiss
    except ImportError:
        message = "to_faiss requires faiss: pip install 'boostmetric[approximate]'"
        raise ImportError(message) from None
    check_is_fitted(adapter, "components_")
    L = np.ascontiguousarray(adapter.components_, dtype=np.float32)
    d, D = L.shape
    is_cosine = adapter.metric == "cosine"
    if index is None:
        index = faiss.IndexFlatIP(d) if is_cosine else faiss.IndexFlatL2(d)
    linear = faiss.LinearTransform(D, d, False)
    faiss.copy_array_to_vector(L.ravel(), linear.A)
    linear.is_trained = True
    linear.set_is_orthonormal()
    wrapped = index
    for step in (faiss.NormalizationTransform(d, 2.0), linear) if is_cosine else (linear,):
        if isinstance(wrapped, faiss.IndexPreTransform):
            wrapped.prepend_transform(step)
        else:
            wrapped = faiss.IndexPreTransform(step, wrapped)
    return wrapped


def _write_safetensors(
    adapter: EmbeddingAdapter, path: Path, base_model: str | None, name: str = "components"
) -> None:
    try:
        from safetensors.numpy import save_file
    except ImportError:
        message = "This format requires safetensors: pip install 'boostmetric[safetensors]'"
        raise ImportError(message) from None
    facts = {key: json.dumps(value) for key, value in metadata(adapter, base_model).items()}
    weights = np.ascontiguousarray(adapter.components_, dtype=np.float32)
    with atomic_write(path) as temporary:
        save_file({name: weights}, str(temporary), metadata=facts)


def _write_onnx(adapter: EmbeddingAdapter, path: Path, base_model: str | None) -> None:
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise ImportError("This format requires onnx: pip install 'boostmetric[onnx]'") from None
    facts = metadata(adapter, base_model)
    weights = np.ascontiguousarray(adapter.components_.T, dtype=np.float32)
    mapped = "mapped" if facts["normalize"] else "transformed"
    nodes = [helper.make_node("MatMul", ["X", "components"], [mapped])]
    if facts["normalize"]:
        nodes.append(helper.make_node("LpNormalization", [mapped], ["transformed"], axis=1, p=2))
    graph = helper.make_graph(
        nodes,
        "adapter",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", weights.shape[0]])],
        [helper.make_tensor_value_info("transformed", TensorProto.FLOAT, ["n", weights.shape[1]])],
        [numpy_helper.from_array(weights, "components")],
    )
    # The versions of ONNX 1.8 (2020), as in `to_onnx`.
    opsets = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=7)
    helper.set_model_props(model, {key: json.dumps(value) for key, value in facts.items()})
    with atomic_write(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


def _write_faiss(adapter: EmbeddingAdapter, path: Path, base_model: str | None) -> None:
    index = to_faiss(adapter)
    import faiss

    with atomic_write(path) as temporary:
        faiss.write_index(index, str(temporary))


def _write_dense(adapter: EmbeddingAdapter, path: Path, base_model: str | None) -> None:
    """A folder that sentence-transformers loads as a module after pooling."""
    d, D = adapter.components_.shape
    config = {
        "in_features": D,
        "out_features": d,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    if os.path.lexists(path):  # renaming would fail, or replace an empty folder
        raise FileExistsError(f"{path} exists. Pass the path of a new folder.")
    # The folder appears with all its files, or not at all.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.mkdir()
    try:
        _write_safetensors(adapter, temporary / "model.safetensors", base_model, "linear.weight")
        for name, facts in (("config", config), ("adapter", metadata(adapter, base_model))):
            with atomic_write(temporary / f"{name}.json") as file:
                file.write_text(json.dumps(facts, indent=2))
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


WRITERS: dict[str, Callable[[EmbeddingAdapter, Path, str | None], None]] = {
    "numpy": EmbeddingAdapter.save,
    "safetensors": _write_safetensors,
    "onnx": _write_onnx,
    "faiss": _write_faiss,
    "sentence-transformers": _write_dense,
}
"""The formats of `export`."""
