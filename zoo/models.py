"""The models of ParlAI's zoo that we read: eight in one archive. Nothing here uses the network."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from polyagents.errors import InputError
from polyagents.parlai_files import parlai_options
from polyagents.parlai_files.parlai_options import architecture_of_agent

GROUP = "pretrained_transformers"


# --backbone; the same transformer is in the archives of all three architectures
BACKBONES = {
    "zoo:reddit": f"zoo:{GROUP}/poly_model_huge_reddit/model",
    "zoo:wikito": f"zoo:{GROUP}/poly_model_huge_wikito/model",
}


@dataclass(frozen=True)
class Archive:
    """A file to download and unpack.

    Attributes:
        url: the address of a tar file, compressed or not.
        folder: the name below `<datapath>/models/` that it is unpacked to.
        version: the version in ParlAI's `.built` file of that folder.
        sha256: the checksum of the file, in hex; None if nobody has published one.
    """

    url: str
    folder: str
    version: str
    sha256: str | None = None


ARCHIVE = Archive(f"https://parl.ai/downloads/_models/{GROUP}/{GROUP}.tgz", GROUP, "v3.0")


@dataclass(frozen=True)
class Model:
    """One model of the zoo.

    Attributes:
        name: the part after `zoo:`.
        kind: bi, poly or cross, as for `polyagents train_model --model`.
        agent: ParlAI's agent that wrote the files.
        pretrained_on: the texts of the pretraining.
        fine_tuned_on: ParlAI's name of a task; None for a model that is only pretrained.
        options: ParlAI's options, as in `model.opt`.
        metric: the value that it should reach.
        source: the source of that value.
    """

    name: str
    title: str
    kind: str
    agent: str
    pretrained_on: str
    fine_tuned_on: str | None
    options: Mapping[str, object]
    metric: str
    source: str

    @property
    def our_agent(self) -> str:
        """The name of our agent, which reads the files."""
        return f"polyagents:{architecture_of_agent(self.agent)}"

    @property
    def short_name(self) -> str:
        """The part of the name that distinguishes it from the others."""
        return self.name.split("/")[-2]


# From the example commands in ParlAI's model_list.py, and its defaults where those are silent and matter.
OPTIONS = {
    "n_layers": 12,
    "n_heads": 12,
    "embedding_size": 768,
    "ffn_size": 3072,
    "n_positions": 1024,
    "n_segments": 2,
    "variant": "xlm",
    "activation": "gelu",
    "embeddings_scale": False,
    "learn_positional_embeddings": True,
    "learn_embeddings": True,
    "share_word_embeddings": False,
    "share_encoders": False,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "relu_dropout": 0.0,
    "output_scaling": 0.06,
    "reduction_type": "mean",
    "dict_tokenizer": "bpe",
    "dict_lower": True,
    "dict_endtoken": "__start__",
    "text_truncate": 360,
    "label_truncate": 72,
    "history_size": 20,
}
OWN_OPTIONS: dict[str, dict[str, object]] = {
    "bi": {},
    "poly": {
        "polyencoder_type": "codes",
        "poly_n_codes": 64,
        "poly_attention_type": "basic",
        "codes_attention_type": "basic",
    },
    "cross": {"reduction_type": "first"},
}


def model(kind: str, folder: str, texts: str, task: str | None, metric: str) -> Model:
    """Make an entry; what follows from the kind is filled in."""
    trained = "ConvAI2 Model" if task else f"{texts} Pretrained Model"
    title = f"{kind.title()}-Encoder Transformer {trained}"
    return Model(
        name=f"{GROUP}/{folder}/model",
        title=title,
        kind=kind,
        agent=f"transformer/{kind}encoder",
        pretrained_on=texts,
        fine_tuned_on=task,
        options=OPTIONS | OWN_OPTIONS[kind],
        metric=metric,
        source=f'ParlAI 1.7.2, parlai/zoo/model_list.py, "{title}": ConvAI2, validation set, 20 candidates',
    )


REDDIT, WIKITO = "Reddit", "Wikipedia/Toronto Books"

MODELS = (
    model("poly", "model_poly", REDDIT, "convai2", "hits@1 .8942, mrr .9359"),
    model("bi", "model_bi", REDDIT, "convai2", "hits@1 .8686, mrr .9197"),
    model("poly", "poly_model_huge_reddit", REDDIT, None, "accuracy .8942 once fine-tuned"),
    model("poly", "poly_model_huge_wikito", WIKITO, None, "accuracy .861 once fine-tuned"),
    model("bi", "bi_model_huge_reddit", REDDIT, None, "accuracy .8686 once fine-tuned"),
    model("bi", "bi_model_huge_wikito", WIKITO, None, "accuracy .846 once fine-tuned"),
    model("cross", "cross_model_huge_reddit", REDDIT, None, "accuracy .903 once fine-tuned"),
    model("cross", "cross_model_huge_wikito", WIKITO, None, "accuracy .873 once fine-tuned"),
)


def find(name: str) -> Model:
    """Return the model with a name, given completely, as in ParlAI, or by its distinguishing part.

    Raises:
        InputError: there is none.
    """
    short = name.removeprefix("zoo:").removeprefix(f"{GROUP}/").rstrip("/").removesuffix("/model")
    known = {entry.short_name: entry for entry in MODELS}
    if short in known:
        return known[short]
    close = difflib.get_close_matches(short, known, cutoff=0.5)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    raise InputError(f"The zoo holds no {name!r}{hint}; polyagents zoo list shows what it holds.")


def our_agent(file: str) -> str | None:
    """Return our agent for a model file or zoo: name that one of ParlAI's agents wrote; None for all others."""
    if file.startswith(f"zoo:{GROUP}/"):
        return find(file).our_agent
    architecture = architecture_of_agent(parlai_options.read(file).get("model"))
    return f"polyagents:{architecture}" if architecture else None
