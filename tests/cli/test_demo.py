from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_tools import failure, result
from sklearn.datasets import load_digits

from boostmetric.cli.compare import TITLES


@pytest.mark.filterwarnings("ignore::DeprecationWarning:matplotlib")
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.slow
def test_demo_marks_the_lowest_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = load_digits(return_X_y=True)
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda return_X_y: (X[:150], y[:150]))
    folder = tmp_path / "new" / "demo"
    lines = result(capsys, "demo", "-o", folder, "--splits", "1").splitlines()
    assert lines[2].split()[:4] == ["wine", "balance", "circles", "digits"]
    rows = {line[:15].strip(): line[15:].split() for line in lines[3:9]}
    assert list(rows) == [title for title in TITLES.values() if title != "PCA"]
    for cells in np.array(list(rows.values()))[:, :4].T:
        errors = [float(cell.rstrip("*")) for cell in cells]
        best = [cell for cell in cells if cell.endswith("*")]
        assert best
        assert float(best[0].rstrip("*")) == min(errors)
    assert f"Saved {folder / 'circles.png'}: circles hidden in noise, before and after." in lines
    assert (folder / "circles.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert lines[-1].endswith("boostmetric compare your.csv --label COLUMN")


def test_demo_requires_matplotlib(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert "requires matplotlib" in failure(capsys, "demo", "-o", tmp_path / "demo")
    assert not (tmp_path / "demo").exists()
