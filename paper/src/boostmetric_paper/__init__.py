"""The experiments of the BoostMetric paper, computed anew with `boostmetric`."""
