"""Input data: points (dense, sparse or on Dask), labels and pairs. No distances.

`points` and `dask_points` hold X, `labels` parses y, `pairs` parses pairs of rows, and `synthetic`
generates two small datasets.
"""
