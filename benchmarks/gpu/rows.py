"""Rows of a measurement in a file, one JSON line each: what is there is not measured again."""

import argparse
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.benchmarks.measure import machine
from polyagents.console import say

Row = dict[str, Any]


def parser(name: str, about: str) -> argparse.ArgumentParser:
    """Declare the flags that the measurements share."""
    parser = CommandParser(name, about)
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True, help="where to measure")
    parser.add_argument("--rows", required=True, help="the file of the rows")
    return parser


def measure_missing(file: str, cases: Iterable[Row], measured: Callable[[Row], Row]) -> None:
    """Measure the cases that the file does not have, and add a row for each.

    Args:
        file: of JSON lines; a last line that is cut off is measured again.
    """
    there = read(file)
    os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
    for case in cases:
        if any(case.items() <= row.items() for row in there):
            continue
        row = case | measured(case) | {"machine": place()}
        say(json.dumps(row))
        with open(file, "a", encoding="utf-8") as out:
            out.write(f"\n{json.dumps(row)}\n")  # after what may be half a line


def read(file: str) -> list[Row]:
    """Read the rows of a file, without what is not a row."""
    rows = []
    if os.path.exists(file):
        with open(file, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    rows.append(dict(json.loads(line)))
                except (ValueError, TypeError):
                    continue
    return rows


def place() -> str:
    """Name the GPU, or else the processor."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else machine()
