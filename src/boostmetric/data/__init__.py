"""What users pass in: points (dense, sparse or on Dask), labels and pairs. No distances.

`points` and `dask_points` hold X, `labels` parses y once, `pairs` reads pairs of rows, and
`synthetic` generates two small datasets.
"""
