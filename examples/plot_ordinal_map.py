"""
Ordinal embedding: a map from comparisons
=========================================

The data are answers to "is a closer to b or to c?" about 34 cities, some of them wrong. There are
no features: city i is the unit vector e_i, so that d²_M(i, j) = M_ii + M_jj − 2·M_ij, and M is a
Gram matrix of the cities. The trace penalty favors a low rank, and the two leading eigenvectors are
a map, up to rotation, reflection and scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from boostmetric import (
    ComparisonOperator,
    Comparisons,
    alpha_path,
    learn_psd,
    satisfied_share,
)

CITIES = {
    "Amsterdam": (52.37, 4.90),
    "Athens": (37.98, 23.73),
    "Barcelona": (41.39, 2.17),
    "Belgrade": (44.79, 20.45),
    "Berlin": (52.52, 13.40),
    "Bordeaux": (44.84, -0.58),
    "Bucharest": (44.43, 26.10),
    "Budapest": (47.50, 19.04),
    "Copenhagen": (55.68, 12.57),
    "Dublin": (53.35, -6.26),
    "Edinburgh": (55.95, -3.19),
    "Hamburg": (53.55, 9.99),
    "Helsinki": (60.17, 24.94),
    "Istanbul": (41.01, 28.98),
    "Kyiv": (50.45, 30.52),
    "Lisbon": (38.72, -9.14),
    "London": (51.51, -0.13),
    "Lyon": (45.76, 4.84),
    "Madrid": (40.42, -3.70),
    "Milan": (45.46, 9.19),
    "Minsk": (53.90, 27.57),
    "Munich": (48.14, 11.58),
    "Naples": (40.85, 14.27),
    "Oslo": (59.91, 10.75),
    "Paris": (48.86, 2.35),
    "Prague": (50.08, 14.44),
    "Riga": (56.95, 24.11),
    "Rome": (41.90, 12.50),
    "Seville": (37.39, -5.99),
    "Sofia": (42.70, 23.32),
    "Stockholm": (59.33, 18.07),
    "Vienna": (48.21, 16.37),
    "Warsaw": (52.23, 21.01),
    "Zurich": (47.38, 8.54),
}
"""Latitude north and longitude east, in degrees."""

# %%
# The survey
# ----------
# A statement (a, b, c) says that a is closer to b than to c on the globe. One in twenty is wrong.
EARTH = 6371.0
"""Radius in km."""

CENTER = (50.0, 12.0)
"""Latitude and longitude of the center of the projection."""

WRONG = 0.05
"""The share of wrong answers."""


@dataclass(frozen=True, eq=False)
class Survey:
    """Statements (a, b, c), "a is closer to b than to c", about n cities.

    Some statements in `train` and `held_out` are wrong. All statements in `fresh` are true, and are
    used only for evaluation.
    """

    n_cities: int
    train: NDArray
    held_out: NDArray
    fresh: NDArray


def make_problem(n_cities=34, n_statements=2000, seed=0):
    """Random statements about the first cities; a quarter as many are held out."""
    rng = np.random.default_rng(seed)
    distances = great_circle(np.array(list(CITIES.values()))[:n_cities])

    def ask(number, wrong):
        rows = np.array([rng.permutation(n_cities)[:3] for _ in range(number)])
        a, b, c = rows.T
        swapped = (distances[a, b] > distances[a, c]) ^ (rng.random(number) < wrong)
        rows[swapped] = rows[swapped][:, [0, 2, 1]]
        return rows

    return Survey(
        n_cities, ask(n_statements, WRONG), ask(n_statements // 4, WRONG), ask(n_statements, 0.0)
    )


def great_circle(degrees):
    """Distances in km on the sphere between all places (latitude, longitude)."""
    latitude, longitude = np.radians(degrees).T
    difference = longitude[:, None] - longitude
    cosines = np.outer(np.sin(latitude), np.sin(latitude))
    cosines += np.outer(np.cos(latitude), np.cos(latitude)) * np.cos(difference)
    return EARTH * np.arccos(np.clip(cosines, -1, 1))


def projected(degrees):
    """Coordinates in km, east and north, by Lambert's azimuthal equal-area projection."""
    latitude, longitude = np.radians(degrees).T
    middle, meridian = np.radians(CENTER)
    sin, cos, east = np.sin(latitude), np.cos(latitude), longitude - meridian
    x = cos * np.sin(east)
    y = np.cos(middle) * sin - np.sin(middle) * cos * np.cos(east)
    z = np.sin(middle) * sin + np.cos(middle) * cos * np.cos(east)
    return EARTH * np.sqrt(2 / (1 + z))[:, None] * np.column_stack([x, y])


survey = make_problem()
print(
    f"{survey.n_cities} cities, {len(survey.train)} statements, {100 * WRONG:.0f} % of them wrong "
    "on average"
)

# %%
# Learning
# --------
# The loss and the strength of the trace penalty are chosen on held-out statements, some of which
# are wrong, too.
LOSS_NAMES = ("logistic", "smoothed_hinge")
ALPHAS = (0.7, 0.5, 0.3, 0.2, 0.1)
"""Relative to the alpha above which M = 0 is optimal."""


def solve(survey, loss="logistic", **options):
    """A Gram matrix of the cities; the options are those of `learn_psd`."""
    operator = ComparisonOperator(
        np.eye(survey.n_cities), Comparisons.from_triplets(survey.train, n_points=survey.n_cities)
    )
    return learn_psd(operator, loss, **{"max_iter": 50, **options})


def share(metric, statements):
    """The share of statements that a metric of the unit vectors satisfies."""
    X = np.eye(metric.n_features)
    return satisfied_share(metric, X, Comparisons.from_triplets(statements))


def choose(survey):
    """The loss and the metric that satisfy most held-out statements; prints all candidates."""
    print("loss            alpha  rank  trace in 2 dims  held-out satisfied")
    best = -1.0
    for loss in LOSS_NAMES:
        for point in alpha_path(partial(solve, survey, loss), ALPHAS):
            satisfied = share(point.metric, survey.held_out)
            print(
                f"{loss:15}{point.alpha:6.1f}{rank(point.metric):6}"
                f"{100 * plane_share(point.metric):15.1f} %{100 * satisfied:18.1f} %"
            )
            if satisfied > best:
                best, chosen = satisfied, (loss, point.metric)
    return chosen


def rank(metric):
    """The number of eigenvalues above 1e-3 of the largest."""
    values = metric.eigenvalues
    return int((values > 1e-3 * values[0]).sum())


def plane_share(metric):
    """The share of the trace of the two leading eigenvectors."""
    values = metric.eigenvalues
    return float(values[:2].sum() / values.sum())


chosen_loss, metric = choose(survey)


# %%
# The map
# -------
# The two leading eigenvectors are aligned with the true map and evaluated on new statements, which
# are all true.
def aligned(points, target):
    """Procrustes alignment of the points with the target, and its disparity.

    As in `scipy.spatial.procrustes`, the disparity is the remaining sum of squares, relative to
    that of the centered target.
    """
    center, own = target.mean(axis=0), points - points.mean(axis=0)
    U, values, Vt = np.linalg.svd(own.T @ (target - center))
    moved = values.sum() / np.sum(own**2) * own @ U @ Vt + center
    return moved, float(np.sum((moved - target) ** 2) / np.sum((target - center) ** 2))


plane = metric.truncate(2)
true = projected(np.array(list(CITIES.values())))
learned, disparity = aligned(plane.transform(np.eye(len(CITIES))), true)
median = float(np.median(np.linalg.norm(learned - true, axis=1)))
print(f"chosen: {chosen_loss}, rank {rank(metric)}")
print(f"trace in the two leading dimensions  {100 * plane_share(metric):5.1f} %")
for name, statements in (("held-out", survey.held_out), ("fresh true", survey.fresh)):
    shares = [100 * share(of, statements) for of in (metric, plane)]
    print(f"{name + ' statements satisfied':37}{shares[0]:5.1f} %, by the map {shares[1]:.1f} %")
print(f"Procrustes disparity                 {disparity:.4f}")
print(f"median error of a position           {median:5.0f} km")

# %%
# The names of the cities are placed such that they overlap as little as possible.


def write_names(axes, true, learned, names):
    """Put each name next to its learned position, with as little overlap as possible."""
    to_pixels = axes.transData.transform
    parts = np.linspace(0, 1, 9)[:, None, None]
    taken = to_pixels(((1 - parts) * true + parts * learned).reshape(-1, 2))
    boxes = []
    # Cities with many close neighbors are placed first.
    pixels = to_pixels(learned)
    crowd = (np.linalg.norm(pixels[:, None] - pixels, axis=2) < 80).sum(axis=1)
    for city in np.argsort(-crowd, kind="stable"):
        text = axes.text(0, 0, names[city], fontsize=9, ha="left", va="bottom")
        extent = text.get_window_extent()
        width, height = extent.width, extent.height
        best = (np.inf, 0.0, 0.0)
        for angle in np.arange(0, 360, 15):
            for reach in (9.0, 13.0, 19.0):
                across, up = np.cos(np.radians(angle)), np.sin(np.radians(angle))
                x = pixels[city, 0] + across * (reach + width / 2) - width / 2
                y = pixels[city, 1] + up * (reach + height / 2) - height / 2
                cost = _covered(taken, boxes, (x, y, x + width, y + height))
                # Without overlap, prefer positions that are close and on the right.
                cost += 0.05 * reach + 0.3 * (1 - across)
                best = min(best, (cost, x, y))
        _, x, y = best
        boxes.append((x, y, x + width, y + height))
        left, bottom = axes.transData.inverted().transform((x, y))
        text.set_position((float(left), float(bottom)))


def _covered(points, boxes, box):
    """Cost of the overlaps of a box: 10 per point and 40 per other box."""
    x0, y0, x1, y1 = box
    inside = (points > (x0 - 6, y0 - 6)).all(axis=1) & (points < (x1 + 6, y1 + 5)).all(axis=1)
    met = sum(
        x0 < right + 3 and left - 3 < x1 and y0 < top + 1 and bottom - 1 < y1
        for left, bottom, right, top in boxes
    )
    return 10.0 * int(inside.sum()) + 40.0 * met


# %%
BLUE, GRAY = "#0072B2", "#8C8C8C"
fig, ax = plt.subplots(figsize=(9, 7), layout="constrained")
for ends in zip(true, learned, strict=True):
    ax.plot(*np.transpose(ends), color=GRAY, linewidth=0.9, zorder=1)
ax.scatter(true[:, 0], true[:, 1], s=18, color=GRAY, linewidths=0, label="true", zorder=2)
ax.scatter(
    learned[:, 0],
    learned[:, 1],
    s=42,
    color=BLUE,
    linewidths=0,
    label="learned",
    zorder=3,
)
ax.set_aspect("equal")
ax.margins(0.07)
ax.axis("off")
ax.set_title(
    f'{survey.n_cities} cities from {len(survey.train):,} answers to "is a closer to b or to c?", '
    f"1 in {1 / WRONG:.0f} of them wrong\nmedian error {median:.0f} km",
    fontsize=12,
    loc="left",
    linespacing=1.5,
)
ax.legend(loc="upper left", frameon=False, fontsize=10, borderaxespad=0)
middle, bottom = true[:, 0].mean(), np.minimum(true, learned)[:, 1].min()
ax.plot([middle - 250, middle + 250], [bottom, bottom], color="black", linewidth=1.5)
ax.text(middle, bottom + 20, "500 km", ha="center", va="bottom", fontsize=9)
fig.draw_without_rendering()
write_names(ax, true, learned, list(CITIES))
plt.show()
