"""CLINC150 (Larson et al. 2019): which of 150 intents does a request to an assistant have?

`-t polyagents.tasks.clinc150`. An example:

    how would i say thank you if i were italian
        -> translate

`:oos` has the requests that have none of these intents, too: their intent is `oos`. In `:outside` no candidate of
theirs is right, for `polyagents calibrate`. `:sample` is a few made-up requests in the same file.
"""

import os

from polyagents.errors import InputError
from polyagents.files.json_files import fits, read_json

from ..intents import Example, IntentTeacher, PublicFile

ADDRESS = "https://raw.githubusercontent.com/clinc/oos-eval/828f8093932c8fe6ca7936c3d2e52903b1c523de/data"
NAMES = {"train": "train", "valid": "val", "test": "test"}  # of the splits in the file


class DefaultTeacher(IntentTeacher):
    """The requests in scope."""

    name, folder = "CLINC150", "clinc150"
    files = (
        PublicFile(f"{ADDRESS}/data_full.json", "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0"),
    )
    parts: tuple[str, ...] = ("{}",)

    def of_split(self, folder: str, split: str) -> list[Example]:
        """IntentTeacher: read the examples of a split."""
        path = os.path.join(folder, "data_full.json")
        try:
            content = read_json(path)
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read ({error}); delete its folder and run again.") from error
        keys = [part.format(NAMES[split]) for part in self.parts]
        if not isinstance(content, dict) or not all(fits(content.get(key), list[tuple[str, str]]) for key in keys):
            raise InputError(f"{path} has no lists of texts and intents named {' and '.join(keys)}; it is damaged.")
        return [Example.of(*pair) for key in keys for pair in content[key]]


class Oos(DefaultTeacher):
    """The requests out of scope, too, with an intent of their own."""

    name, parts = "CLINC150 with requests out of scope", ("{}", "oos_{}")


class Outside(DefaultTeacher):
    """The requests out of scope, too: the intents of those in scope are their candidates, and none is right."""

    name, parts = "CLINC150 with requests out of scope", ("{}", "oos_{}")
    none_intent = "oos"


class Sample(DefaultTeacher):
    """Made-up requests in the same file."""

    sample = os.path.join(os.path.dirname(__file__), "sample")
