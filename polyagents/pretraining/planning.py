"""Windows of examples -> updates: which are of masked words, which of next utterances, and in what chunks."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from parlai.utils.distributed import get_rank
from torch import Tensor

from polyagents.errors import InputError
from polyagents.models.encoder import TRAINING_CHUNK_TOKENS
from polyagents.models.tokens import Tokens, pad_pairs
from polyagents.parlai_agents.base_agent import BaseAgent
from polyagents.parlai_agents.task_reader import TextPair
from polyagents.pretraining import batches
from polyagents.pretraining.masking import MaskingVocabulary, mask
from polyagents.pretraining.pretraining_examples import PretrainingExample, encode, split_sentences, with_others
from polyagents.training import distributed


@dataclass(frozen=True)
class Update:
    """What one step of the optimiser is trained on: chunks of examples, and whether words are guessed in them."""

    words: bool
    chunks: list[list[PretrainingExample]]


class PlanningAgent(BaseAgent):
    """What a pre-training agent is trained on.

    Attributes:
        seed: with the number of a window it decides what is drawn.
        vocabulary: which tokens can be hidden.
    """

    seed: int
    vocabulary: MaskingVocabulary

    def plan(self, pairs: Sequence[TextPair], window: int) -> list[Update]:
        """A window of the training data -> updates, of words and of next utterances in turn.

        All processes get as many. Half of the pairs are for either objective.

        Args:
            pairs: read from the task.
            window: its number, of which everything that is drawn depends.
        """
        draw = random.Random(f"{self.seed} {get_rank()} {window}")
        pairs = self._as_asked(pairs, draw)
        if not min(distributed.gathered(len(pairs))):
            if window == 0:
                raise InputError(
                    f"--task {self.opt['task']} brings no pairs of texts to train on; --pretrain-task next_utterance "
                    f"takes texts with labels, next_sentence texts of several lines."
                )
            return []
        shuffled = draw.sample(pairs, len(pairs))
        middle = len(shuffled) // 2
        both = [
            self._chunks(half, shuffled, words, draw)
            for half, words in ((shuffled[:middle] or shuffled, True), (shuffled[middle:], False))
        ]
        size = max(self.opt["batch_tokens"] // self.chunk_tokens, 1)
        needed = distributed.gathered(max(math.ceil(len(made) / size) for _, made in both))
        count = min(max(needed), *distributed.gathered(min(len(examples) for examples, _ in both)))
        dealt = [
            [
                Update(words, [[examples[row] for row in chunk] for chunk in update])
                for update in batches.updates(made, count, draw)
            ]
            for words, (examples, made) in zip((True, False), both, strict=True)
        ]
        return [update for turn in zip(*dealt, strict=True) for update in turn]

    def plan_evaluation(self, pairs: Sequence[TextPair]) -> list[Update]:
        """All of the pairs for both objectives; the same ones are masked and exchanged in the same way each time."""
        draw = random.Random(0)
        pairs, plans = self._as_asked(pairs, draw), []
        for words in (True, False):
            examples, made = self._chunks(pairs, pairs, words, draw)
            plans += [Update(words, [[examples[row] for row in chunk]]) for chunk in made]
        return plans

    def _chunks(
        self, pairs: Sequence[TextPair], others: Sequence[TextPair], words: bool, draw: random.Random
    ) -> tuple[list[PretrainingExample], list[batches.Chunk]]:
        given = [(pair, True) for pair in pairs] if words else with_others(pairs, others, draw)
        examples = encode(given, self.dict.ready, self.text_truncate, self.label_truncate)
        return examples, batches.chunks([len(example) for example in examples], self.chunk_tokens, draw)

    def _as_asked(self, pairs: Sequence[TextPair], draw: random.Random) -> list[TextPair]:
        """The pairs of the objective that was asked for."""
        if self.opt["pretrain_task"] == "next_sentence":
            return split_sentences(pairs, draw)
        return [pair for pair in pairs if pair.label]

    @property
    def chunk_tokens(self) -> int:
        """Tokens that go through the encoder at once, padding counted."""
        suits = TRAINING_CHUNK_TOKENS.get(self.device.type, TRAINING_CHUNK_TOKENS["cuda"])
        return min(self.opt.get("chunk_tokens") or suits, self.opt["batch_tokens"])

    def prepared(
        self, chunk: Sequence[PretrainingExample], words: bool, draw: torch.Generator
    ) -> tuple[Tokens, Tensor, Any]:
        """A chunk as the model takes it: tokens [B, T], targets, and for words which were hidden [B, T]."""
        tokens = pad_pairs([(example.context, example.label) for example in chunk], self.dict.ready.pad_id)
        if not words:
            targets = torch.tensor([int(example.is_next) for example in chunk])
            return tokens.to(self.device), targets.to(self.device), None
        hidden, chosen = mask(tokens, self.vocabulary, draw, self.opt["whole_word_masking"])
        return hidden.to(self.device), tokens.ids[chosen].to(self.device), chosen.to(self.device)
