"""From a name that begins with `zoo:` to a model file on this machine, without ParlAI."""

import os

from polyagents.zoo.archive import fetch
from polyagents.zoo.datapath import chosen, models_folder
from polyagents.zoo.models import ARCHIVE, BACKBONES, find


def zoo_file(name: str, data: str | None = None) -> str:
    """Return the path of a model file; a model of the zoo is downloaded, and any other name is already a path.

    "zoo:minilm" is the folder of an encoder, from a package.

    Its archive is downloaded at the first call; `model_file.opt` and `model_file.dict` are next to the model file.

    Args:
        name: such as "zoo:pretrained_transformers/model_poly/model", or the short "zoo:reddit" and "zoo:wikito".
        data: the folder of data and models; by default ParlAI's (`polyagents.zoo.datapath`).

    Raises:
        InputError: the zoo has no such model, it is in a package that is not installed, or it cannot be downloaded.
    """
    if not name.startswith("zoo:"):
        return name
    from polyagents.backbone_files import MINILM, located_backbone  # imports transformers

    if name == MINILM:
        return located_backbone(name)
    model, data = find(BACKBONES.get(name, name)), chosen(data)
    fetch(ARCHIVE, data)
    return os.path.join(models_folder(data), *model.name.split("/"))
