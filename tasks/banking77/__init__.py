"""BANKING77 (Casanueva et al. 2020): which of 77 intents does a question to a bank have?

`-t polyagents.tasks.banking77`. An example:

    Can I track my card while it is in the process of delivery?
        -> card arrival

Valid is a fifth of the published training set. `:all` trains on all of it, to report what was chosen before; `:sample`
is a few made-up questions in the same files.
"""

import os

from ..intents import Example, IntentTeacher, PublicFile, is_held_out
from ..ubuntu.rows import read_rows

ADDRESS = (
    "https://raw.githubusercontent.com/PolyAI-LDN/task-specific-datasets/57ec275d8078af65b7731c2a98be812d844a6d6b/"
    "banking_data"
)


class DefaultTeacher(IntentTeacher):
    """Four fifths of the published training set, a fifth of it as valid, and the published test set."""

    name, folder = "BANKING77", "banking77"
    files = (
        PublicFile(f"{ADDRESS}/train.csv", "b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b"),
        PublicFile(f"{ADDRESS}/test.csv", "d12d6e3bc4c3103966ae786dc435913c0c563dfa328f5a3646d0e62cfeeb474d"),
    )

    def of_split(self, folder: str, split: str) -> list[Example]:
        """IntentTeacher: read the examples of a split."""
        path = os.path.join(folder, "test.csv" if split == "test" else "train.csv")
        found = [Example.of(*row) for row in read_rows(path, ("text", "category"))]
        return found if split == "test" else [one for one in found if is_held_out(one) == (split == "valid")]


class All(DefaultTeacher):
    """The whole published training set, valid included: choose nothing on valid then."""

    name = "BANKING77, valid included"

    def of_split(self, folder: str, split: str) -> list[Example]:
        """IntentTeacher: read the examples of a split."""
        found = super().of_split(folder, split)
        return [*found, *super().of_split(folder, "valid")] if split == "train" else found


class Sample(DefaultTeacher):
    """Made-up questions in the same files."""

    sample = os.path.join(os.path.dirname(__file__), "sample")
