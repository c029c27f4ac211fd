"""The tables and the picture of `scale.py`, and the model of a cluster.

The model. A worker with m comparisons needs κ·m seconds for an iteration, which is linear in m (the
table of growth shows it). A round with B blocks costs t₀ + τ·B, whatever the blocks do, and what
they send, B·D² numbers of 8 bytes for the scatter, goes through the network of the client:

    seconds = κ·m/W·o + rounds·(t₀ + τ·B) + 8·B·D²/bandwidth,

o being how much more work there is in blocks, which touch points of other blocks too: measured in
one thread, with 32 blocks and with one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

Record = dict[str, Any]

PICTURE = Path(__file__).parents[1] / "docs" / "growth.png"

BANDWIDTH = 1.25e9
"""Bytes a second: 10 Gb/s."""

WORKERS, COMPARISONS = 100, 10**9


def tables(records: list[Record]) -> str:
    """All of them, as Markdown."""
    return "\n\n".join([engines(records), growth(records), model(records)])


def of_kind(records: list[Record], kind: str, **asked: Any) -> list[Record]:
    """Those of one kind, and with these arguments."""
    return [
        record
        for record in records
        if record["run"]["kind"] == kind
        and all(record["run"]["asked"].get(name) == value for name, value in asked.items())
    ]


def engines(records: list[Record]) -> str:
    """A million points on every engine."""
    chosen = of_kind(records, "engines")
    first = chosen[0]
    lines = [
        f"{first['n']:,} points × {first['D']} features (float32), {first['m']:,} triplets in a "
        f"file, exponential loss, 100 iterations of one direction; median of an iteration. A read "
        "of X is `X @ v` with one thread, timed in the same process.",
        "",
        "| engine | blocks | seconds an iteration | in reads of X | rounds | MB at the peak |",
        "|---|---|---|---|---|---|",
    ]
    for record in chosen:
        asked = record["run"]["asked"]
        lines.append(
            f"| {asked['engine']} | {asked['n_blocks']} | {record['seconds']:.3f} "
            f"({record['quartiles'][0]:.3f} … {record['quartiles'][1]:.3f}) | "
            f"{record['seconds'] / record['read']:.0f} | {record['rounds']:.1f} | "
            f"{record['mb']:,.0f} |"
        )
    serial, same, threads, dask = (record["seconds"] for record in chosen)
    empty = chosen[3]["empty_round"] * chosen[3]["rounds"]
    lines += [
        "",
        "| what | measured | target |",
        "|---|---|---|",
        f"| threads, times as fast as serial in one block | {serial / threads:.2f} | ≥ 1.6 |",
        f"| threads, times as fast as serial in the same two blocks | {same / threads:.2f} | |",
        f"| Dask's overhead: share of an iteration beyond that of threads | "
        f"{1 - threads / dask:.0%} | ≤ 25% |",
        f"| rounds of Dask with nothing to do, as a share of an iteration | {empty / dask:.0%} | |",
        f"| most memory, MB | {max(record['mb'] for record in chosen):,.0f} | ≤ 4,000 |",
    ]
    (small,) = of_kind(records, "small")
    lines += [
        "",
        f"With two workers of {small['run']['asked']['memory_limit']}, which cannot hold their "
        f"blocks and keep some on disk: {small['n_blocks']} blocks, {small['seconds']:.1f} s an "
        f"iteration, {small['mb']:,.0f} MB at the peaks of client and workers.",
    ]
    return "\n".join(lines)


def exponent(records: list[Record], size: str, what: str) -> float:
    """That of the power of a size that fits best."""
    x, y = (np.log([record[name] for record in records]) for name in (size, what))
    return float(np.polyfit(x, y, 1)[0])


def growth(records: list[Record]) -> str:
    """Time and memory against n and D."""
    lines = [
        "| engine | n | D | scatter | seconds an iteration | rounds | MB at the peak |",
        "|---|---|---|---|---|---|---|",
    ]
    by_features = sorted(of_kind(records, "D"), key=lambda record: record["D"])
    for record in of_kind(records, "n") + by_features:
        asked = record["run"]["asked"]
        path = "matrix-free" if asked.get("matrix_free") else "matrix"
        lines.append(
            f"| {asked['engine']} | {record['n']:,} | {record['D']} | {path} | "
            f"{record['seconds']:.4f} | {record['rounds']:.1f} | {record['mb']:,.0f} |"
        )
    lines += [
        "",
        "| fitted exponent of | time | time, last doubling | memory | target for time |",
        "|---|---|---|---|---|",
    ]
    for what, size, chosen, target in curves(records):
        time, memory = exponent(chosen, size, "seconds"), exponent(chosen, size, "mb")
        last = exponent(chosen[-2:], size, "seconds")
        lines.append(f"| {what} | {time:.2f} | {last:.2f} | {memory:.2f} | {target} |")
    return "\n".join(lines)


def curves(records: list[Record]) -> list[tuple[str, str, list[Record], str]]:
    """What grows: its name, the size, the records by size, and the target of the exponent."""
    known = [
        ("n, threads", "n", of_kind(records, "n", engine="threads"), "≤ 1.1"),
        ("n, Dask", "n", of_kind(records, "n", engine="dask"), ""),
        ("D, matrix-free", "D", of_kind(records, "D", matrix_free=True), "≤ 1.2"),
        ("D, matrix", "D", of_kind(records, "D", matrix_free=False), ""),
    ]
    return [
        (what, size, sorted(chosen, key=lambda record: record[size]), target)
        for what, size, chosen, target in known
    ]


def picture(records: list[Record]) -> None:
    """The same, drawn."""
    figure = Figure(figsize=(10, 7.5), dpi=120, layout="constrained")
    axes = figure.subplots(2, 2, sharex="col")
    for what, size, chosen, _ in curves(records):
        column = 0 if size == "n" else 1
        for row, (name, factor) in enumerate((("seconds", 1), ("mb", 1e-3))):
            x = [record[size] for record in chosen]
            y = [factor * record[name] for record in chosen]
            label = f"{what.split(', ')[1]}: exponent {exponent(chosen, size, name):.2f}"
            axes[row, column].loglog(x, y, "o-", label=label)
    for row, column in np.ndindex(2, 2):
        axes[row, column].grid(alpha=0.3, which="both")
        axes[row, column].legend(frameon=False)
    axes[0, 0].set_ylabel("seconds an iteration")
    axes[1, 0].set_ylabel("GB at the peak")
    axes[0, 0].set_title("64 features, 9 triplets a point")
    axes[0, 1].set_title("50,000 points, 450,000 triplets")
    axes[1, 0].set_xlabel("n, points")
    axes[1, 1].set_xlabel("D, features")
    figure.savefig(PICTURE)


def model(records: list[Record]) -> str:
    """The constants, the check, and the prediction."""
    by_number, many = of_kind(records, "n", engine="dask"), of_kind(records, "blocks")
    threads = of_kind(records, "n", engine="threads")
    D = threads[0]["D"]
    kappa = float(np.median([2 * each["seconds"] / each["m"] for each in threads]))
    blocks = np.array([each["n_blocks"] for each in [by_number[2], *many]])
    empty = [each["empty_round"] for each in [by_number[2], *many]]
    tau, start = np.polyfit(blocks, empty, 1)
    start = max(start, 0.0)
    one, (divided,) = of_kind(records, "engines")[0], of_kind(records, "overlap")
    overlap = divided["seconds"] / one["seconds"]

    def predicted(m: float, workers: int, n_blocks: int, rounds: float, over: float) -> list[float]:
        return [
            kappa * m / workers * over,
            rounds * (start + tau * n_blocks),
            8 * n_blocks * D**2 / BANDWIDTH,
        ]

    lines = [
        f"κ = {kappa * 1e9:.0f} ns a comparison, t₀ = {start * 1e3:.1f} ms, "
        f"τ = {tau * 1e3:.2f} ms; there is no network in the check, on one machine.",
        "",
        "| n | blocks | seconds an iteration by the model | measured | model / measured |",
        "|---|---|---|---|---|",
    ]
    for each in by_number + many:
        work, rounds, _ = predicted(each["m"], 2, each["n_blocks"], each["rounds"], 1.0)
        ratio = (work + rounds) / each["seconds"]
        lines.append(
            f"| {each['n']:,} | {each['n_blocks']} | {work + rounds:.3f} | {each['seconds']:.3f} | "
            f"{ratio:.2f} |"
        )
    work, rounds, network = predicted(COMPARISONS, WORKERS, WORKERS, one["rounds"], overlap)
    lines += [
        "",
        f"{COMPARISONS:,} comparisons of {COMPARISONS // 9:,} points × {D} on {WORKERS} workers of "
        "one core, 10 Gb/s, by the model:",
        "",
        "| part | seconds an iteration |",
        "|---|---|",
        f"| work on blocks (overlap {overlap:.2f}) | {work:.2f} |",
        f"| {one['rounds']:.1f} rounds of {WORKERS} tasks | {rounds:.2f} |",
        f"| {8 * WORKERS * D**2 / 1e6:.1f} MB of scatters into the client | {network:.3f} |",
        f"| all | {work + rounds + network:.2f} |",
    ]
    return "\n".join(lines)
