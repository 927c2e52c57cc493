"""Where ParlAI's `zoo:pretrained_transformers/NAME/model` ends up: it imports this as parlai.zoo's module."""

from polyagents.zoo.archive import fetch
from polyagents.zoo.models import ARCHIVE


def download(datapath: str) -> None:
    """Have the models below `datapath`, an earlier download of ParlAI's own included.

    It stands in for ParlAI's function of this name, which cannot resume, takes half an archive for a whole one, and
    writes wherever the archive says.

    Raises:
        InputError: they cannot be had; the sentence says why.
    """
    fetch(ARCHIVE, datapath)
