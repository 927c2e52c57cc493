"""From a name that begins with `zoo:` to a model file on this machine, without ParlAI."""

import os

from polyagents.zoo.archive import fetch
from polyagents.zoo.datapath import datapath, models_folder
from polyagents.zoo.models import ARCHIVE, BACKBONES, find


def zoo_file(name: str, data: str | None = None) -> str:
    """Have a model of the zoo on the disk: the path of its model file; any other name is a path already.

    Its archive is downloaded at the first call; `model_file.opt` and `model_file.dict` lie beside the model file.

    Args:
        name: such as "zoo:pretrained_transformers/model_poly/model", or the short "zoo:reddit" and "zoo:wikito".
        data: the folder that data and models are kept in; by default ParlAI's (`polyagents.zoo.datapath`).

    Raises:
        InputError: the zoo holds no such model, or it cannot be downloaded.
    """
    if not name.startswith("zoo:"):
        return name
    model, data = find(BACKBONES.get(name, name)), datapath(data)
    fetch(ARCHIVE, data)
    return os.path.join(models_folder(data), *model.name.split("/"))
