"""The module that ParlAI imports for `zoo:pretrained_transformers/NAME/model`, instead of its own."""

from polyagents.zoo.archive import fetch
from polyagents.zoo.models import ARCHIVE


def download(datapath: str) -> None:
    """Download the models to `datapath`, unless they are there, also by an earlier download of ParlAI's own.

    This replaces ParlAI's function of the same name, which cannot resume, takes half an archive for a whole one, and
    writes wherever the archive says.

    Raises:
        InputError: they cannot be downloaded; the sentence says why.
    """
    fetch(ARCHIVE, datapath)
