"""The experiments of the BoostMetric paper, reproduced with `boostmetric`."""
