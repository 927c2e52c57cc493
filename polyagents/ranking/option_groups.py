"""The groups of a model's options: encoder, texts and architecture."""

from polyagents.models.architecture import find
from polyagents.models.model_options import EncoderOptions
from polyagents.options import Options
from polyagents.text.text_options import TextOptions


def option_groups(architecture: str) -> tuple[type[Options], ...]:
    """Return the groups of options of an architecture.

    Raises:
        InputError: there is no such architecture.
    """
    return EncoderOptions, TextOptions, find(architecture).options_type
