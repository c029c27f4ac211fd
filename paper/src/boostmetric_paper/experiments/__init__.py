"""The experiments of the paper: cells, methods, results, report."""
