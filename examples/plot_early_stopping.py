"""
Early stopping
==============

With few points, many uninformative features and 10% random labels, a long fit learns noise: the
training objective keeps decreasing, but the test error increases. `early_stopping` holds out some
of the training points and keeps the metric with the lowest error on them.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from boostmetric import BoostMetric, Comparisons, boost, knn_error

X, y = make_classification(
    2400, 50, n_informative=6, n_redundant=4, n_classes=3, flip_y=0.1, class_sep=1.2, random_state=0
)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, train_size=500, stratify=y, random_state=0
)

# %%
# Without early stopping: `boost`, the function that `BoostMetric` is based on, calls `evaluate`
# after each direction.
steps = []
objectives = []
errors = []


def evaluate(fit):
    if fit.n_tried % 5 == 0:
        metric = fit.metric
        steps.append(fit.n_tried)
        objectives.append(fit.objective())
        errors.append(
            knn_error(metric.transform(X_train), y_train, metric.transform(X_test), y_test)
        )
    return False


comparisons = Comparisons.from_labels(X_train, y_train)
boost(X_train, comparisons, "logistic", max_iter=150, directions_per_step=1, callback=evaluate)

# %%
# With early stopping: the fit ends after `n_iter_no_change` directions without a better metric.
learner = BoostMetric(
    max_iter=150,
    directions_per_step=1,
    early_stopping=True,
    validation_fraction=0.3,
    n_iter_no_change=30,
    random_state=0,
).fit(X_train, y_train)
stopped = knn_error(learner.transform(X_train), y_train, learner.transform(X_test), y_test)
kept = learner.metric_.n_directions

# %%
# The dot is the metric that early stopping kept, without using the test points.
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
left.plot(steps, objectives, color="#4D4D4D")
left.set_ylabel("training objective")
right.plot(steps, [100 * error for error in errors], color="#D55E00")
right.plot(kept, 100 * stopped, "o", color="#0072B2")
right.annotate(
    f"early stopping: {kept} directions",
    (kept, 100 * stopped),
    xytext=(14, -14),
    textcoords="offset points",
    color="#0072B2",
)
right.annotate(
    "no early stopping",
    (steps[-1], 100 * errors[-1]),
    xytext=(0, 8),
    textcoords="offset points",
    color="#D55E00",
    ha="right",
)
right.set_ylabel("test error of 3 nearest neighbors, %")
for ax in (left, right):
    ax.set_xlabel("directions")
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
