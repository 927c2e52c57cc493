"""The numbers that the paper reports, table by table: the one place that says which recipes exist.

Humeau et al., arXiv 1905.01969, the later version, read in the anonymous copy submitted to ICLR 2020. Percent, mean ±
deviation over the paper's runs. A row is MODEL/PRETRAINING or MODEL/PRETRAINING/VARIANT, a column is TASK SPLIT METRIC.
That copy's Table 10 has no column for Ubuntu V2's MRR.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """A number that a recipe should reach.

    Attributes:
        metric: R@1, R@5, R@10 or MRR, among the task's candidates.
        deviation: over the paper's runs, in percent; None if the paper gives none.
        source: the table, or ParlAI, whose zoo promises a number for its own models.
    """

    split: str
    metric: str
    mean: float
    deviation: float | None
    source: str

    def __str__(self) -> str:
        mean = f"{self.mean:.1f}" if round(self.mean, 1) == self.mean else str(self.mean)
        return mean if self.deviation is None else f"{mean} ± {self.deviation:.1f}"


# Negatives of a bi-encoder in training; 511 is the batch of 512 that the other tables have, too.
TABLE_2 = """
                        convai2/valid/R@1
bi/bert/31-negatives    81.0
bi/bert/63-negatives    81.7
bi/bert/127-negatives   82.3
bi/bert/255-negatives   83.0
bi/bert                 83.3
"""

# Which layers are trained; all but the embeddings in the other tables.
TABLE_3 = """
                        convai2/valid/R@1
bi/bert/top-layer       74.2
bi/bert/top-4-layers    82.0
bi/bert                 83.3
bi/bert/every-layer     83.0
cross/bert/top-layer    80.6
cross/bert/top-4-layers 86.3
cross/bert              87.3
cross/bert/every-layer  86.6
"""

TABLE_4 = """
                      convai2/test/R@1 dstc7/test/R@1 dstc7/test/MRR ubuntu/test/R@1 ubuntu/test/MRR wikipedia/test/R@1
bi/bert               81.7±0.2 66.8±0.7 74.6±0.5 80.6±0.4 88.0±0.3        -
poly-16/bert          83.2±0.1 67.8±0.3 75.1±0.2 81.2±0.2 88.3±0.1        -
poly-64/bert          83.7±0.2 67.0±0.9 74.7±0.6 81.3±0.2 88.4±0.1        -
poly-360/bert         83.7±0.2 68.9±0.4 76.2±0.2 80.9±0.0 88.1±0.1        -
cross/bert            84.8±0.3 67.4±0.7 75.6±0.4 82.8±0.3 89.4±0.2        -
bi/wikito             82.0±0.1 64.5±0.5 72.6±0.4 80.8±0.5 88.2±0.4        -
poly-16/wikito        82.7±0.1 65.3±0.9 73.2±0.7 83.4±0.2 89.9±0.1        -
poly-64/wikito        83.3±0.1 65.8±0.7 73.5±0.5 83.4±0.1 89.9±0.0        -
poly-360/wikito       83.8±0.1 65.8±0.7 73.6±0.6 83.7±0.0 90.1±0.0        -
cross/wikito          84.9±0.3 65.3±1.0 73.8±0.6 83.1±0.7 89.7±0.5        -
bi/reddit             84.8±0.1 70.9±0.5 78.1±0.3 83.6±0.7 90.1±0.4     71.0
poly-16/reddit        86.3±0.3 71.6±0.6 78.4±0.4 86.0±0.1 91.5±0.1     71.5
poly-64/reddit        86.5±0.2 71.2±0.8 78.2±0.7 85.9±0.1 91.5±0.1     71.3
poly-360/reddit       86.8±0.1 71.4±1.0 78.3±0.7 85.9±0.1 91.5±0.0     71.8
cross/reddit          87.9±0.2 71.7±0.3 79.0±0.2 86.5±0.1 91.9±0.0        -
"""

# How a bi-encoder's outputs become one vector; the first in the other tables.
TABLE_7 = """
                        convai2/valid/R@1
bi/bert                 83.3
bi/bert/mean-of-first-16 82.9
bi/bert/mean-of-first-64 82.7
bi/bert/mean            83.1
"""

# A poly-encoder's context vectors: learnt codes, the first m outputs, the last m, the last m and the first.
TABLE_8 = """
                              convai2/valid/R@1 convai2/test/R@1 dstc7/valid/R@1 dstc7/test/R@1
poly-1/bert                   81.9±0.3 81.0±0.1 56.2±0.1 66.9±0.7
poly-1-first/bert             83.2±0.2 81.5±0.1 56.4±0.3 66.8±0.7
poly-1-last/bert              82.9±0.1 81.0±0.1 56.1±0.4 67.2±1.1
poly-4/bert                   83.8±0.2 82.2±0.5 56.5±0.5 66.8±0.7
poly-4-first/bert             83.4±0.2 81.6±0.1 56.9±0.5 67.2±1.3
poly-4-last/bert              82.8±0.2 81.3±0.4 56.0±0.5 65.8±0.5
poly-4-last-and-first/bert    82.9±0.1 81.4±0.2 55.8±0.3 66.1±0.8
poly-16/bert                  84.4±0.1 83.2±0.1 57.7±0.2 67.8±0.3
poly-16-first/bert            85.2±0.1 83.9±0.2 56.1±1.7 66.8±1.1
poly-16-last/bert             83.9±0.2 82.0±0.4 56.1±0.3 66.2±0.7
poly-16-last-and-first/bert   83.8±0.3 81.7±0.3 56.1±0.3 66.6±0.2
poly-64/bert                  84.9±0.1 83.7±0.2 58.3±0.4 67.0±0.9
poly-64-first/bert            86.0±0.2 84.2±0.2 57.7±0.6 67.1±0.1
poly-64-last/bert             84.9±0.3 82.9±0.2 57.0±0.2 66.5±0.5
poly-64-last-and-first/bert   85.0±0.2 83.2±0.2 57.3±0.3 67.1±0.5
poly-360/bert                 85.3±0.3 83.7±0.2 57.7±0.3 68.9±0.4
poly-360-first/bert           86.3±0.1 84.6±0.3 58.1±0.4 66.8±0.7
poly-360-last/bert            86.3±0.1 84.7±0.3 58.0±0.4 68.1±0.5
poly-360-last-and-first/bert  86.2±0.3 84.5±0.4 58.3±0.4 68.0±0.8
"""

TABLE_10 = """
                      convai2/valid/R@1 convai2/test/R@1 dstc7/valid/R@1 dstc7/test/R@1 dstc7/test/R@10 dstc7/test/MRR ubuntu/valid/R@1 ubuntu/test/R@1 ubuntu/test/R@5
bi/bert               83.3±0.2 81.7±0.2 56.5±0.4 66.8±0.7 89.0±1.0 74.6±0.5 80.9±0.6 80.6±0.4 98.2±0.1
poly-16-first/bert    85.2±0.1 83.9±0.2 56.7±0.2 67.0±0.9 88.8±0.3 74.6±0.6 81.7±0.5 81.4±0.6 98.2±0.1
poly-16/bert          84.4±0.1 83.2±0.1 57.7±0.2 67.8±0.3 88.6±0.2 75.1±0.2 81.5±0.1 81.2±0.2 98.2±0.0
poly-64-first/bert    86.0±0.2 84.2±0.2 57.1±0.2 66.9±0.7 89.1±0.2 74.7±0.4 82.2±0.6 81.9±0.5 98.4±0.0
poly-64/bert          84.9±0.1 83.7±0.2 58.3±0.4 67.0±0.9 89.2±0.2 74.7±0.6 81.8±0.1 81.3±0.2 98.2±0.1
poly-360-first/bert   86.3±0.1 84.6±0.3 57.8±0.5 67.0±0.5 89.6±0.9 75.0±0.6 82.7±0.4 82.2±0.6 98.4±0.1
poly-360/bert         85.3±0.3 83.7±0.2 57.7±0.3 68.9±0.4 89.9±0.5 76.2±0.2 81.5±0.1 80.9±0.1 98.0±0.4
cross/bert            87.1±0.1 84.8±0.3 59.4±0.4 67.4±0.7 90.5±0.3 75.6±0.4 83.3±0.4 82.8±0.3 98.4±0.1
bi/wikito             84.6±0.1 82.0±0.1 54.9±0.5 64.5±0.5 88.1±0.2 72.6±0.4 80.9±0.5 80.8±0.5 98.4±0.1
poly-16-first/wikito  84.1±0.2 81.4±0.2 53.9±2.7 63.3±2.9 87.2±1.5 71.6±2.4 80.8±0.5 80.6±0.4 98.4±0.1
poly-16/wikito        85.4±0.2 82.7±0.1 56.0±0.4 65.3±0.9 88.2±0.7 73.2±0.7 84.0±0.1 83.4±0.2 98.7±0.0
poly-64-first/wikito  86.1±0.4 83.9±0.3 55.6±0.9 64.3±1.5 87.8±0.4 72.5±1.0 80.9±0.6 80.7±0.6 98.4±0.0
poly-64/wikito        85.6±0.1 83.3±0.1 56.2±0.4 65.8±0.7 88.4±0.3 73.5±0.5 84.0±0.1 83.4±0.1 98.7±0.0
poly-360-first/wikito 86.6±0.3 84.4±0.2 57.5±0.4 66.5±1.2 89.0±0.5 74.4±0.7 81.3±0.6 81.1±0.4 98.4±0.2
poly-360/wikito       86.1±0.1 83.8±0.1 56.5±0.8 65.8±0.7 88.5±0.6 73.6±0.6 84.2±0.2 83.7±0.0 98.7±0.1
cross/wikito          87.3±0.5 84.9±0.3 57.7±0.5 65.3±1.0 89.7±0.5 73.8±0.6 83.2±0.8 83.1±0.7 98.7±0.5
bi/reddit             86.9±0.1 84.8±0.1 60.1±0.4 70.9±0.5 90.6±0.3 78.1±0.3 83.7±0.7 83.6±0.7 98.8±0.1
poly-16-first/reddit  89.0±0.1 86.4±0.3 60.4±0.3 70.7±0.7 91.0±0.4 78.0±0.5 84.3±0.3 84.3±0.2 98.9±0.0
poly-16/reddit        88.6±0.3 86.3±0.3 61.1±0.4 71.6±0.6 91.3±0.3 78.4±0.4 86.1±0.1 86.0±0.1 99.0±0.1
poly-64-first/reddit  89.5±0.1 87.3±0.2 61.0±0.4 70.9±0.6 91.5±0.5 78.0±0.3 84.0±0.4 83.9±0.4 98.8±0.0
poly-64/reddit        89.0±0.1 86.5±0.2 60.9±0.6 71.2±0.8 91.3±0.4 78.2±0.7 86.2±0.1 85.9±0.1 99.1±0.0
poly-360-first/reddit 90.0±0.1 87.3±0.1 61.1±1.9 70.9±2.1 91.5±0.9 77.9±1.6 84.8±0.5 84.6±0.5 98.9±0.1
poly-360/reddit       89.2±0.1 86.8±0.1 61.2±0.2 71.4±1.0 91.1±0.3 78.3±0.7 86.3±0.1 85.9±0.1 99.1±0.0
cross/reddit          90.3±0.2 87.9±0.2 63.9±0.3 71.7±0.3 92.4±0.5 79.0±0.2 86.7±0.1 86.5±0.1 99.1±0.0
"""  # noqa: E501

# parlai/zoo/model_list.py of ParlAI 1.7.2: its own models, fine-tuned with the commands of its project page.
PARLAI = """
                        convai2/valid/R@1
bi/reddit               86.86
poly-64/reddit          89.42
cross/reddit            90.3
bi/wikito               84.6
poly-64/wikito          86.1
cross/wikito            87.3
"""

TABLES = {
    "Table 2": TABLE_2,
    "Table 3": TABLE_3,
    "Table 4": TABLE_4,
    "Table 7": TABLE_7,
    "Table 8": TABLE_8,
    "Table 10": TABLE_10,
    "ParlAI": PARLAI,
}

# Table 6: hours of training on 8 Volta 100. It does not say with which pretraining.
HOURS = {
    "convai2": {"bi": 2.0, "poly-16": 2.7, "poly-64": 2.8, "cross": 9.4},
    "dstc7": {"bi": 4.9, "poly-16": 5.5, "poly-64": 5.7, "cross": 13.5},
    "ubuntu": {"bi": 7.9, "poly-16": 8.0, "poly-64": 8.0, "cross": 39.9},
}


def expected() -> dict[str, tuple[Value, ...]]:
    """Return all numbers of the tables, by TASK/MODEL/PRETRAINING[/VARIANT]."""
    found: dict[str, list[Value]] = {}
    for source, table in TABLES.items():
        for name, value in values(table, source):
            found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def values(table: str, source: str) -> Iterator[tuple[str, Value]]:
    """Yield the cells of one table; "-" is an empty one."""
    head, *rows = table.strip().splitlines()
    for row in rows:
        model, *cells = row.split()
        for column, cell in zip(head.split(), cells, strict=True):
            if cell != "-":
                task, split, metric = column.split("/")
                mean, _, deviation = cell.partition("±")
                yield (
                    f"{task}/{model}",
                    Value(split, metric, float(mean), float(deviation) if deviation else None, source),
                )
