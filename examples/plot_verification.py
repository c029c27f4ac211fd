"""
Pair verification
=================

Do two pictures show the same person, who is not in the training data? Nothing can be learned about
that person, but a metric can learn what varies between pictures of any person: here four
directions, such as pose and illumination, with a large variance and no information.
"""

import matplotlib.pyplot as plt
import numpy as np

from boostmetric import BoostMetric
from boostmetric.plots import PairDistanceDisplay

rng = np.random.default_rng(0)
nuisance = rng.normal(size=(4, 40))


def pictures(n_people, n_each):
    """Forty features of each picture, and the number of the person."""
    person = np.repeat(np.arange(n_people), n_each)
    faces = rng.normal(size=(n_people, 40))[person]
    circumstances = rng.normal(size=(len(person), 4)) @ nuisance
    return faces + circumstances + rng.normal(scale=0.8, size=faces.shape), person


# %%
# Train on 200 people, test on pairs of pictures of 100 others.
X, person = pictures(200, 5)
X_others, other = pictures(100, 5)
learner = BoostMetric().fit(X, person)

# %%
# Here the starting transformation, which makes the differences between pictures of the same person
# equally large in all directions, is all that can be learned. The fit finds this out on people that
# it holds out, keeps the start, and warns.
print(learner.init_, learner.errors_)

# %%
# Distances of pairs, in units of their median. Before, two pictures of the same person are hardly
# closer than two of different people.
distances = PairDistanceDisplay.from_estimator(learner, X_others, other)

# %%
# The best threshold depends on the costs of the two errors; the ROC curve shows all thresholds. At
# the equal error rate (EER), the false positive rate equals the false negative rate.
distances.plot(kind="roc")
plt.show()
