"""All experiments."""

from __future__ import annotations

from boostmetric_paper.experiments.caltech import CALTECH
from boostmetric_paper.experiments.experiment import Experiment
from boostmetric_paper.experiments.lfw import LFW
from boostmetric_paper.experiments.msrc import MSRC
from boostmetric_paper.experiments.tables import TABLES

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (*TABLES, *CALTECH, *MSRC, *LFW)
}
"""Those of the paper, and for the experiments on images a small version, NAME-small."""
