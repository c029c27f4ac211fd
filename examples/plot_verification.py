"""
Same person or not?
===================

Verification asks whether two pictures show the same person, one that was never seen before. Nothing
can be learned about that person, but it can be learned what varies between pictures of anybody:
here four directions, such as pose and light, that are large and mean nothing.
"""

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from boostmetric import BoostMetric
from boostmetric.plots import PairDistanceDisplay

rng = np.random.default_rng(0)
nuisance = rng.normal(size=(4, 40))


def pictures(n_people: int, n_each: int) -> tuple[NDArray, NDArray]:
    """Forty features of each picture, and the number of the person."""
    person = np.repeat(np.arange(n_people), n_each)
    faces = rng.normal(size=(n_people, 40))[person]
    circumstances = rng.normal(size=(len(person), 4)) @ nuisance
    return faces + circumstances + rng.normal(scale=0.8, size=faces.shape), person


# %%
# Learned from 200 people, judged by pairs of pictures of 100 others.
X, person = pictures(200, 5)
X_others, other = pictures(100, 5)
learner = BoostMetric().fit(X, person)

# %%
# The distances of pairs, in units of their median. Before, two pictures of the same person are
# hardly nearer than two of different people.
distances = PairDistanceDisplay.from_estimator(learner, X_others, other)

# %%
# Where to put the threshold depends on which error is worse; the ROC curve shows all of them. At
# the equal error rate (EER), the same share of impostors is accepted as of people rejected.
distances.plot(kind="roc")
plt.show()
