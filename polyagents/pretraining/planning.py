"""Plans updates from windows of examples: for each its targets (hidden words or classes of labels) and its chunks."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from parlai.utils.distributed import get_rank

from polyagents.errors import InputError
from polyagents.models.encoder import TRAINING_CHUNK_TOKENS
from polyagents.models.tokens import pad_joint, to_device
from polyagents.parlai_agents.base_agent import BaseAgent
from polyagents.parlai_agents.task_reader import TextPair
from polyagents.pretraining.joining import Prepared, joined_chunks
from polyagents.pretraining.masking import MaskingVocabulary, mask
from polyagents.pretraining.pretrain_model import LABELS, WORDS
from polyagents.pretraining.pretraining_examples import PretrainingExample, encode, split_sentences, with_others
from polyagents.pretraining.utterance_relevance import with_relevance
from polyagents.training import distributed

GPU_CHUNK_TOKENS = 16_384  # joined on a GPU; more would pad texts of more different lengths. Chosen here.

Labelled = tuple[TextPair, int]
"""A pair, and the class of its label."""

Chunk = list[int]
"""Rows of a window."""

Objectives = tuple[str, ...]
"""WORDS, LABELS, or both of them in the same input."""


@dataclass(frozen=True)
class Update:
    """The training data of one optimiser step: chunks of examples, and the targets in them."""

    objectives: Objectives
    chunks: list[list[PretrainingExample]]


class PlanningAgent(BaseAgent):
    """The part of a pre-training agent that decides its training data.

    The seed decides, together with the number of a window, all random choices.
    """

    seed: int
    vocabulary: MaskingVocabulary

    def plan(self, pairs: Sequence[TextPair], window: int) -> list[Update]:
        """Turn a window of the training data into updates, of words and of labels alternately, or of both at once.

        All processes get the same number of updates. If the objectives alternate, half of the pairs are for each. All
        random choices depend on the number of the window.
        """
        draw = random.Random(f"{self.seed} {get_rank()} {window}")
        given = self._as_asked(pairs, draw)
        if not min(distributed.gathered(len(given))):
            if window == 0:
                raise InputError(
                    f"--task {self.opt['task']} has no pairs of texts to train on; --pretrain-task next_utterance "
                    f"takes texts with labels, next_sentence texts of several lines, utterance_relevance dialogues of "
                    f"two utterances."
                )
            return []
        shuffled = draw.sample(given, len(given))
        middle = len(shuffled) // 2
        parts = [
            (objectives, *self._chunks(part, draw))
            for objectives, part in self._parts(shuffled, shuffled[:middle] or shuffled, shuffled[middle:], draw)
        ]
        size = max(self.opt["batch_tokens"] // self.chunk_tokens, 1)
        needed = distributed.gathered(max(math.ceil(len(made) / size) for _, _, made in parts))
        count = min(max(needed), *distributed.gathered(min(len(examples) for _, examples, _ in parts)))
        dealt = [
            [
                Update(objectives, [[examples[row] for row in chunk] for chunk in update])
                for update in distributed_over(made, count, draw)
            ]
            for objectives, examples, made in parts
        ]
        return [update for turn in zip(*dealt, strict=True) for update in turn]

    def plan_evaluation(self, pairs: Sequence[TextPair]) -> list[Update]:
        """Plan all pairs for both objectives; the same words are masked and the same labels exchanged every time."""
        draw = random.Random(0)
        given, plans = self._as_asked(pairs, draw), []
        for objectives, part in self._parts(given, given, given, draw):
            examples, made = self._chunks(part, draw)
            plans += [Update(objectives, [[examples[row] for row in chunk]]) for chunk in made]
        return plans

    def _parts(
        self, given: Sequence[Labelled], words: Sequence[Labelled], labels: Sequence[Labelled], draw: random.Random
    ) -> Iterator[tuple[Objectives, Sequence[Labelled]]]:
        """Yield what is guessed, and in which pairs: all given, or if objectives alternate, those for each."""
        if self.is_joint:
            yield (WORDS, LABELS), given
        else:
            yield (WORDS,), words
            # Drawn after the words were planned, as this is a generator: the order of draws decides a run.
            yield (LABELS,), with_others([pair for pair, _ in labels], [pair for pair, _ in given], draw)

    def _chunks(self, given: Sequence[Labelled], draw: random.Random) -> tuple[list[PretrainingExample], list[Chunk]]:
        examples = encode(given, self.dict.ready, self.text_truncate, self.label_truncate)
        return examples, chunks([len(example) for example in examples], self.chunk_tokens, draw)

    def _as_asked(self, pairs: Sequence[TextPair], draw: random.Random) -> list[Labelled]:
        """Return the pairs for the chosen objective, and the classes of their labels."""
        if self.is_joint:
            return with_relevance(pairs, self.opt["relevance_context"], draw)
        is_running_text = self.opt["pretrain_task"] == "next_sentence"
        return [(pair, 1) for pair in (split_sentences(pairs, draw) if is_running_text else pairs) if pair.label]

    @property
    def is_joint(self) -> bool:
        """Whether words and labels are guessed in the same input, as in BERT-FP, instead of alternately."""
        return bool(self.opt["pretrain_task"] == "utterance_relevance")

    @property
    def chunk_tokens(self) -> int:
        """The number of tokens of a chunk, padding included; the same on every device, so that all plan alike."""
        return min(self.opt.get("chunk_tokens") or TRAINING_CHUNK_TOKENS["cpu"], self.opt["batch_tokens"])

    def on_device(self, chunks: Sequence[Prepared]) -> Iterator[Prepared]:
        """Move chunks to the device, on a GPU joined to larger ones unless `--chunk-tokens` is given."""
        if self.device.type != "cpu" and not self.opt.get("chunk_tokens"):
            chunks = list(joined_chunks(chunks, GPU_CHUNK_TOKENS, self.dict.ready.pad_id))
        for tokens, targets, hidden in chunks:
            yield (
                tokens.to(self.device),
                {name: to_device(target, self.device) for name, target in targets.items()},
                None if hidden is None else to_device(hidden, self.device),
            )

    def prepared(self, chunk: Sequence[PretrainingExample], objectives: Objectives, draw: torch.Generator) -> Prepared:
        """Prepare a chunk for the model, on the CPU.

        Returns:
            Tokens [B, T], targets by objective, and which words were hidden [B, T].
        """
        tokens = pad_joint([(example.context, [example.label]) for example in chunk], self.dict.ready.pad_id)
        targets, hidden = {}, None
        if LABELS in objectives:
            targets[LABELS] = torch.tensor([example.label_class for example in chunk])
        if WORDS in objectives:
            whole = tokens.ids
            tokens, chosen = mask(tokens, self.vocabulary, draw, self.opt["whole_word_masking"])
            targets[WORDS], hidden = whole[chosen], chosen
        return tokens, targets, hidden


def chunks(lengths: Sequence[int], tokens: int, draw: random.Random) -> list[Chunk]:
    """Group rows of similar length into chunks of at most `tokens` tokens, padding included, but of at least one row.

    Padding is wasted work; sorted by length, a window of thousands of examples needs almost none.

    Args:
        lengths: the number of tokens of each row.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], draw.random()))
    made, start = [], 0
    while start < len(order):
        stop = start + max(tokens // max(lengths[order[start]], 1), 1)
        made.append(order[start:stop])
        start = stop
    return made


def split_up(made: list[Chunk], count: int) -> list[Chunk]:
    """Halve the fullest chunks until there are `count` of them, if there are enough rows."""
    made = sorted(made, key=len)
    while len(made) < count and len(made[-1]) > 1:
        fullest = made.pop()
        middle = len(fullest) // 2
        made += [fullest[:middle], fullest[middle:]]
        made.sort(key=len)
    return made


def distributed_over(made: list[Chunk], count: int, draw: random.Random) -> list[list[Chunk]]:
    """Distribute chunks in random order over `count` updates, as evenly as possible: the chunks of each."""
    made = list(made)
    draw.shuffle(made)
    size = math.ceil(len(made) / count)
    made = split_up(made, size * count)
    draw.shuffle(made)
    return [made[place::count] for place in range(count)]
