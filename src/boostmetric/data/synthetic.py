"""Generated datasets: concentric circles with noise, and the UCI dataset "balance scale"."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state


def concentric_circles(
    n_samples: int = 1000,
    n_classes: int = 4,
    n_noise: int = 8,
    noise_scale: float = 2.0,
    random_state: int | np.random.RandomState | None = 0,
) -> tuple[NDArray, NDArray]:
    """Circles in the first two dimensions, Gaussian noise in the others (the paper's toy data).

    Class c lies on the circle of radius c + 0.5 around the origin, with a standard deviation of
    0.1. All classes have the same mean, so LDA finds nothing; if the noise varies more than the
    circles, neither does PCA.

    Parameters
    ----------
    n_samples : number of points, evenly distributed over the classes
    n_classes, n_noise : number of circles, and of noise dimensions
    noise_scale : standard deviation of the noise. That of each of the first two dimensions is 1.6
        for four classes, and PCA misses them from 1.75 on. Up to 2, a two-dimensional metric
        learned from 1000 points separates the circles; at 3 they overlap
    random_state : seed or generator; None for different data in each call

    Returns
    -------
    X : array of shape (n_samples, 2 + n_noise)
    y : array of shape (n_samples,), the classes 0, 1, ...

    Examples
    --------
    >>> X, y = concentric_circles(n_samples=40)
    >>> X.shape, np.bincount(y).tolist()
    ((40, 10), [10, 10, 10, 10])
    >>> bool(np.all(abs(np.hypot(X[:, 0], X[:, 1]) - (y + 0.5)) < 0.5))
    True
    """
    rng = check_random_state(random_state)
    y = np.arange(n_samples) % n_classes
    radii = 0.5 + y + 0.1 * rng.normal(size=n_samples)
    angles = rng.uniform(0, 2 * np.pi, size=n_samples)
    noise = noise_scale * rng.normal(size=(n_samples, n_noise))
    return np.column_stack([radii * np.cos(angles), radii * np.sin(angles), noise]), y


def balance_scale() -> tuple[NDArray, NDArray]:
    """The UCI dataset "balance scale": all states of a balance with weights and distances 1 to 5.

    Returns
    -------
    X : array of shape (625, 4): left weight, left distance, right weight, right distance
    y : array of shape (625,): "L" or "R", the side with the larger weight times distance, or "B"
        if they are equal; rows are in the order of the UCI file

    Examples
    --------
    >>> X, y = balance_scale()
    >>> X[1].tolist(), str(y[1])
    ([1.0, 1.0, 1.0, 2.0], 'R')
    """
    X = np.indices((5, 5, 5, 5)).reshape(4, -1).T + 1.0
    torque = X[:, 0] * X[:, 1] - X[:, 2] * X[:, 3]
    return X, np.array(["R", "B", "L"])[np.sign(torque).astype(int) + 1]
