"""How often `EmbeddingAdapter` recommends what does not help, and finds what does.

    python benchmarks/adapter_trust.py [--runs 100] [--large-runs 30] [--only TEXT …] [--write]

With shuffled labels or judgments, nothing can be learned, and unchanged vectors are right. With
planted gains, the oracle, a projection, raises nDCG@10 by .10 (.095 to .102): some features, which
it drops, are unrelated to the Gaussian classes, and their scale determines the gain (`SIZES` and
`NUISANCE` in `tests/adapter_cells.py`; `--oracle` prints the gains). Labels are classes; judged are
queries and twice as many documents, and those of the class of a query are relevant. If whole
classes are held out, five shuffled classes replace many small ones, which is harder.

With duplicates, 10 or 50 % of the queries, documents or labeled points are copies of others, with
the same label or the same judgments, of the same document or of a copy of it. Every second copy
differs from the original by rounding (1e-6).

Each run is a line in adapter_trust.jsonl, so an interrupted run is resumed. `--only` selects cells
whose names contain all of these texts, such as "150x16" or "query". Exits with status 1 if shuffled
data are recommended in more than 8 % of the runs of any cell, or in more than 2 % of all, or if
planted gains are found in less than 80 % of the runs of any cell.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import report

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from adapter_cells import DUPLICATES, NUISANCE, SIZES, Cell, cells, fit, oracle_gain

PAGE = Path(__file__).resolve().parents[1] / "docs/embeddings.md"
MEASURED = Path(__file__).with_name("adapter_trust.jsonl")


def run(cell: Cell, seed: int) -> dict[str, Any]:
    """One run as a line of the file."""
    start = time.process_time()
    adapter = fit(cell, seed)
    found = adapter.selection_
    return {
        "cell": cell.name,
        "run": seed,
        "recommended": adapter.strength_ is not None,
        "gain": round(found.gain, 4),
        "error": round(found.error, 4),
        "seconds": round(time.process_time() - start, 2),
    }


def measured() -> dict[str, dict[int, dict[str, Any]]]:
    """The finished runs of each cell."""
    found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for line in MEASURED.read_text().splitlines() if MEASURED.exists() else ():
        each = json.loads(line)
        found[each["cell"]][each["run"]] = each
    return found


def table(chosen: list[Cell]) -> tuple[str, bool]:
    """Markdown table of the rates, and whether all are as they should be."""
    done = measured()
    lines = [
        "| n × D | data, side | search | shuffled: 0, 10, 50 % duplicates | planted |",
        "|---|---|---|---|---|",
    ]
    rows: dict[tuple[Any, ...], dict[tuple[float, bool], list[bool]]] = defaultdict(dict)
    for cell in chosen:
        runs = [each["recommended"] for each in done.get(cell.name, {}).values()]
        rows[cell[:4]][cell[4:]] = runs
    shuffled, is_good = [], True
    for (size, kind, side, new), rates in rows.items():
        if not any(rates.values()):
            continue
        texts = []
        for key in (*((share, False) for share in DUPLICATES), (0.0, True)):
            runs = rates.get(key, [])
            texts.append(f"{sum(runs)} of {len(runs)}" if runs else "–")
            if not key[1]:
                shuffled += runs
                is_good &= sum(runs) <= max(1, 0.08 * len(runs))
            else:
                is_good &= sum(runs) >= 0.8 * len(runs)
        claim = "new documents" if new else "known documents"
        name = f"{size.n} × {size.D} | {kind}, {side} | {claim}"
        lines.append(f"| {name} | {', '.join(texts[:-1])} | {texts[-1]} |")
    is_good &= sum(shuffled) <= max(1, 0.02 * len(shuffled))
    rate = 100 * sum(shuffled) / max(1, len(shuffled))
    lines += [
        "",
        f"Shuffled labels and judgments, from which nothing can be learned, were recommended in\n"
        f"{sum(shuffled)} of {len(shuffled)} runs ({rate:.1f} %). In the last column, the best map "
        "raises nDCG@10 by .10.",
    ]
    return "\n".join(lines), is_good


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=100, help="of each cell")
    parser.add_argument("--large-runs", type=int, default=30, help="of each cell of 1500 x 384")
    parser.add_argument("--only", nargs="+", default=[], help="texts in the names of cells")
    parser.add_argument("--oracle", action="store_true", help="print the gains of the oracle")
    parser.add_argument("--write", action="store_true", help="store the table in RESULTS.md")
    options = parser.parse_args()
    if options.oracle:
        for (kind, side, D), nuisance in NUISANCE.items():
            size = next(each for each in SIZES if each.D == D)
            print(kind, side, D, f"{oracle_gain(size, kind, side, nuisance, 10):.3f}")
        return
    chosen = [cell for cell in cells() if all(text in cell.name for text in options.only)]
    done = measured()
    for seed in range(max(options.runs, options.large_runs)):
        for cell in chosen:
            n_runs = options.large_runs if cell.size.n > 1000 else options.runs
            if seed < n_runs and seed not in done[cell.name]:
                with MEASURED.open("a") as file:
                    file.write(json.dumps(run(cell, seed)) + "\n")
    text, is_good = table(chosen)
    print(text)
    if options.write:
        report.write_section("Adapters on shuffled and planted data", "adapter_trust.py", text)
        command = f"`python benchmarks/adapter_trust.py --write`, {datetime.date.today()}"
        block = f"Recommended adapters ({command}):\n\n{text}"
        report.replace_block(PAGE, "trust", f"\n\n{block}\n\n")
    if not is_good:
        raise SystemExit("Some rates are not as they should be.")


if __name__ == "__main__":
    main()
