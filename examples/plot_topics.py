"""
Sparse and multilabel data: topics of texts
===========================================

Word counts of texts are long, sparse rows, and most words that two texts share are uninformative. A
text may have several topics; two texts are similar if they share one. `BoostMetric` accepts both: X
as a sparse matrix, which is never densified, and y with one column per topic.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array

from boostmetric import BoostMetric
from boostmetric.plots import PairDistanceDisplay, SpectrumDisplay

TOPICS = ("sea", "music", "cooking", "chess", "trains")
N_COMMON, N_OWN = 700, 60
rng = np.random.default_rng(0)

# %%
# Every text has sixty words, of which a quarter belong to its one or two topics. The others are
# common words, a few of them very frequent, as in any language.
words = [f"common word {i}" for i in range(N_COMMON)]
words += [f"{topic}: word {i}" for topic in TOPICS for i in range(N_OWN)]
frequencies = 1 / (1 + np.arange(N_COMMON))


def texts(n):
    """Word counts and topics of n texts."""
    counts = np.zeros((n, len(words)))
    topics = np.zeros((n, len(TOPICS)), dtype=int)
    for count, about in zip(counts, topics, strict=True):
        chosen = rng.permutation(len(TOPICS))[: rng.integers(1, 3)]
        about[chosen] = 1
        common = rng.choice(N_COMMON, size=45, p=frequencies / frequencies.sum())
        own = N_COMMON + N_OWN * rng.choice(chosen, size=15) + rng.integers(N_OWN, size=15)
        np.add.at(count, np.append(common, own), 1)
    return csr_array(counts), topics


X, y = texts(1000)
X_fresh, y_fresh = texts(500)

# %%
# Four eigenvalues are large: four dimensions separate five topics. The others fit noise in the
# training texts.
learner = BoostMetric(max_iter=60, n_neighbors=5).fit(X, y)
print(f"{X.shape[1]} words, {X.nnz / X.shape[0]:.0f} different ones in a text")
metric = learner.metric_.truncate(4)

# %%
# The diagonal of M shows the influence of each word. The metric has learned which words are common.
diagonal = np.einsum("dj,j->d", metric.directions**2, metric.coefs)
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
SpectrumDisplay.from_estimator(learner, ax=left)
right.plot(diagonal, ".", color="#0072B2", markersize=3)
right.set_xticks(
    [N_COMMON / 2, *(N_COMMON + N_OWN * (k + 0.5) for k in range(len(TOPICS)))],
    ["common", *TOPICS],
    rotation=90,
)
for k in range(len(TOPICS)):
    right.axvline(N_COMMON + N_OWN * k, color="#DDDDDD", zorder=0)
right.set_ylabel("M_ii of a word, four eigenvectors kept")
right.spines[["top", "right"]].set_visible(False)

# %%
# Do two new texts share a topic? The Euclidean distance is hardly better than chance.
roc = PairDistanceDisplay.from_estimator(metric, X_fresh, y_fresh, kind="roc")
plt.show()
