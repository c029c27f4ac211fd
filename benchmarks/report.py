"""Writing of RESULTS.md, which has one section per benchmark script, and of blocks of pages."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
import sklearn

RESULTS = Path(__file__).with_name("RESULTS.md")


def main(title: str, script: str, measure: Callable[[], str]) -> None:
    """Print the result of `measure`; --write stores it in its section of RESULTS.md."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--write", action="store_true", help=f"store the table in {RESULTS.name}")
    write = parser.parse_args().write
    measured = measure()
    print(measured)
    if write:
        write_section(title, script, measured)


def write_section(title: str, script: str, body: str) -> None:
    """Replace or append a section that states the command, the date and the machine."""
    packages = ", ".join(f"{each.__name__} {each.__version__}" for each in (np, scipy, sklearn))
    section = (
        f"## {title}\n\n`python benchmarks/{script} --write`, {datetime.date.today()}, "
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, {packages}.\n\n{body}\n"
    )
    text = RESULTS.read_text() if RESULTS.exists() else "# Benchmark results\n"
    if f"## {title}\n" not in text:
        text = f"{text.rstrip()}\n\n## {title}\n"
    old = re.compile(rf"## {re.escape(title)}\n.*?(?=\n## |\Z)", re.DOTALL)
    text = old.sub(lambda _: section, text)
    temporary = RESULTS.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(RESULTS)


def replace_block(page: Path, name: str, text: str) -> None:
    """Replace the text between `<!-- name -->` and `<!-- end of name -->`, if a page has them."""
    old = page.read_text()
    body = re.compile(f"(?<=<!-- {name} -->).*?(?=<!-- end of {name} -->)", re.DOTALL)
    if (new := body.sub(lambda _: text, old)) != old:
        page.write_text(new)
