"""Encodes texts as token ids: a compiled tokenizer with the paper's special tokens and truncation."""

import contextlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import transformers
from tokenizers import AddedToken, Tokenizer

from polyagents.errors import InputError, first_line

# Bytes of lines whose ids are cached, some 500,000 lines: in an epoch a label occurs as label, as negative and in the
# next turn's history. Lines of calls with more texts are not cached: they come from files, where each occurs once.
REMEMBERED_BYTES = 128_000_000
REMEMBERED_CALLS = 1_000
PROBES = ["a word, 7 \u00e9 \u4e2d \U0001f600\t\n", "a" * 40 + "!"]  # what no usable tokenizer fails at
LINE_BYTES = 250  # that an empty line takes in a dict


MASK_TOKENS = ("<mask>", "[MASK]")  # what hides a word, in the vocabularies of RoBERTa's kin and of BERT's


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a tokenizer; those that it lacks are added to it.

    `start` and `end` are the paper's [S] around every text: [CLS] and [SEP] for BERT, the end-of-text token on both
    sides for GPT-2. `newline` separates utterances (paper v1 4.5); byte-level tokenizers have a token for it.
    """

    pad: str
    start: str
    end: str
    newline: str


@dataclass(frozen=True)
class ParlaiVocabulary:
    """The additional data of a tokenizer that was built from ParlAI's own dictionary.

    Attributes:
        tokens: the size of ParlAI's dictionary; the tokenizer numbers other pieces from there on, which are the
            unknown token in ParlAI.
        counts: how often each token was seen, for writing the dictionary back.
    """

    tokens: int
    counts: list[int]


def check_token_ids(compiled: Tokenizer, parlai: ParlaiVocabulary | None) -> None:
    """Refuse token ids beyond the vocabulary: an embedding has one row for each of its tokens."""
    size = compiled.get_vocab_size()
    largest = max(compiled.get_vocab().values(), default=-1)
    if largest >= size:
        raise InputError(f"The tokenizer has {size:,} tokens, but one of them has the number {largest:,}.")
    if parlai is not None and not (type(parlai.tokens) is int and 0 < parlai.tokens <= size):
        raise InputError(
            f"The tokenizer was built from ParlAI's dictionary, but does not have {parlai.tokens!r} tokens of it."
        )


@contextlib.contextmanager
def no_panics() -> Iterator[None]:
    """Turn a panic of the tokenizers library, which is not an Exception, into a ValueError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the tokenizers library fails with it: {first_line(error)}") from error


def try_out(compiled: Tokenizer) -> None:
    """Encode a few texts, on which a damaged tokenizer may fail; its exceptions pass through."""
    compiled.encode_batch_fast(PROBES)


def ids_around(compiled: Tokenizer) -> tuple[list[int], list[int], list[int]]:
    """Return the ids that a tokenizer itself puts before a text, between the texts of a pair, and after a text."""
    text = len(compiled.encode("a", add_special_tokens=False).ids)
    single, pair = compiled.encode("a").ids, compiled.encode("a", "a").ids
    before = compiled.encode("a").special_tokens_mask.index(0)
    after = single[before + text :]
    return single[:before], pair[before + text : len(pair) - text - len(after)], after


class UnencodableText(InputError):
    """A text that a tokenizer fails on."""


class RankingTokenizer:
    """A compiled tokenizer, with the tokens that surround contexts and candidates.

    Attributes:
        compiled: the tokenizer of the `tokenizers` library.
        parlai: set if it was built from ParlAI's own dictionary.
        newline_ids: the ids of a line end, between utterances.
        context_prompt: token ids before every context.
        candidate_prompt: token ids before every candidate.
        plain: whether texts are read as Hugging Face's libraries do (`--plain-texts`).
        before: token ids before a text and its prompt: [S], or what the tokenizer itself puts there.
        after: the same after a text.
        between: the same between the texts of a pair.
    """

    prompts = "", ""
    context_prompt: Sequence[int] = ()
    candidate_prompt: Sequence[int] = ()
    plain = False

    def __init__(self, compiled: Tokenizer, special: SpecialTokens, parlai: ParlaiVocabulary | None = None):
        """Wrap a compiled tokenizer, which has the special tokens; an InputError refuses ids beyond the vocabulary."""
        check_token_ids(compiled, parlai)
        compiled.no_truncation()  # a folder's tokenizer.json may cut at 128 tokens (MiniLM); lengths are ours to set
        compiled.no_padding()
        compiled.encode_special_tokens = True  # "[SEP]" typed by a user is text
        self.compiled, self.special, self.parlai = compiled, special, parlai
        self._known: dict[str, array[int]] = {}
        self._remembered = 0  # bytes of the cached lines
        self.unknown = str(compiled.model.unk_token) if parlai else ""
        self.pad_id, self.start_id, self.end_id = map(self.id_of, (special.pad, special.start, special.end))
        self.before, self.between, self.after = [self.start_id], [self.end_id, self.start_id], [self.end_id]
        # To ParlAI this is a word: several pieces if its dictionary was learnt from single lines.
        self.newline_ids = list(self._encode_lines(["\n"])["\n"]) if parlai else [self.id_of(special.newline)]

    @classmethod
    def of_content(cls, content: dict[str, Any]) -> "RankingTokenizer":
        """Build the tokenizer from `content`, perhaps by way of JSON, and try it; of damaged content, any Exception."""
        parlai = content.get("parlai")
        with no_panics():
            tokenizer = cls(
                Tokenizer.from_str(content["tokenizer"]),
                SpecialTokens(**content["special_tokens"]),
                None if parlai is None else ParlaiVocabulary(**parlai),
            )
            try_out(tokenizer.compiled)
        return tokenizer

    def content(self) -> dict[str, Any]:
        """Return all of the tokenizer as plain values; the compiled one is JSON text."""
        return {
            "special_tokens": asdict(self.special),
            "tokenizer": self.compiled.to_str(),
            "parlai": None if self.parlai is None else asdict(self.parlai),
        }

    def __len__(self) -> int:
        """Return the number of token ids."""
        return self.compiled.get_vocab_size() if self.parlai is None else self.parlai.tokens

    def id_of(self, token: str) -> int:
        """Return the id of a token of the vocabulary."""
        found = self.compiled.token_to_id(token)
        assert found is not None, f"no token {token}"
        return found

    # ---- ids -------------------------------------------------------------------------------------------------------

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts in one call, without [S] around them; line ends become the newline token, unless `plain`."""
        split = [[text] if self.plain else text.split("\n") for text in texts]
        if len(texts) > REMEMBERED_CALLS:
            known = self._encode_lines([line for lines in split for line in lines])
        else:
            if self._remembered > REMEMBERED_BYTES:
                self._forget()
            known = self._known  # this call keeps it, even if another thread clears the cache in the meantime
            new = self._encode_lines([line for lines in split for line in lines if line not in known])
            self._remembered += sum(LINE_BYTES + 4 * len(line) + 4 * len(ids) for line, ids in new.items())
            known.update(new)
        encoded = []
        for lines in split:
            ids = known[lines[0]].tolist()
            for line in lines[1:]:
                ids += self.newline_ids
                ids += known[line]
            encoded.append(ids)
        return encoded

    def _forget(self) -> None:
        self._known, self._remembered = {}, 0

    def _encode_lines(self, lines: Iterable[str]) -> dict[str, "array[int]"]:
        """Encode each distinct line once; the first that the tokenizer fails on is named by an UnencodableText."""
        distinct = list(dict.fromkeys(lines))
        if not distinct:
            return {}
        # The library refuses a lone surrogate (undecodable bytes on a terminal); it becomes a question mark.
        texts = [line.encode("utf-8", "replace").decode() for line in distinct]
        try:
            with no_panics():
                encoded = [found.ids for found in self.compiled.encode_batch_fast(texts, add_special_tokens=False)]
        except ValueError as error:  # as at an expression that backtracks
            if len(texts) > 1:
                for text in texts:
                    self._encode_lines([text])
            raise UnencodableText(
                f"The model's tokenizer fails on {texts[0][:40]!a} ({first_line(error)}); change the text, or use a "
                f"model with another tokenizer."
            ) from error
        if self.parlai is not None:
            size, unknown = len(self), self.id_of(self.unknown)
            encoded = [
                ids if max(ids, default=0) < size else [token if token < size else unknown for token in ids]
                for ids in encoded
            ]
        return {line: array("i", ids) for line, ids in zip(distinct, encoded, strict=True)}

    def set_prompts(self, context: str, candidate: str, plain: bool = False) -> None:
        """Set the texts before every context and candidate, "" for none, and whether texts are read `plain`."""
        self.plain, self.prompts = plain, (context, candidate)
        if plain:
            self.before, self.between, self.after = ids_around(self.compiled)
        self.context_prompt, self.candidate_prompt = self.encode(self.prompts)

    def contexts(self, texts: Sequence[str], limit: int | None) -> list[list[int]]:
        """Encode contexts, surrounded and truncated as `context` says."""
        if self.plain:  # a vocabulary of bytes may join the prompt's end and the text's beginning to one token
            return [self._plain(ids, limit) for ids in self.encode([self.prompts[0] + text for text in texts])]
        return [self.context(ids, limit) for ids in self.encode(texts)]

    def candidates(self, texts: Sequence[str], limit: int | None) -> list[list[int]]:
        """Encode candidates, surrounded and truncated as `candidate` says."""
        if self.plain:
            return [self._plain(ids, limit) for ids in self.encode([self.prompts[1] + text for text in texts])]
        return [self.candidate(ids, limit) for ids in self.encode(texts)]

    def _plain(self, ids: Sequence[int], limit: int | None) -> list[int]:
        room = None if limit is None else max(limit - len(self.before) - len(self.after), 0)
        return [*self.before, *ids[:room], *self.after]

    def context(self, ids: Sequence[int], limit: int | None) -> list[int]:
        """Surround and truncate a context: [S] prompt context [S].

        Its end, which is nearest to the reply, is kept (paper v1 5.1); if `plain`, its beginning.

        Args:
            limit: how many tokens in all, [S] and prompt counted; None for no limit.
        """
        if self.plain:
            return self._plain([*self.context_prompt, *ids], limit)
        beyond = 0 if limit is None else max(len(self.context_prompt) + len(ids) + 2 - limit, 0)
        return [self.start_id, *self.context_prompt, *ids[beyond:], self.end_id]

    def candidate(self, ids: Sequence[int], limit: int | None) -> list[int]:
        """Surround and truncate a candidate, as `context` does; its beginning is kept.

        ParlAI truncates the last [S], too, and its weights expect that.
        """
        ids = [*self.candidate_prompt, *ids]
        if self.plain:
            return self._plain(ids, limit)
        if limit is None or len(ids) + 2 <= limit:
            return [self.start_id, *ids, self.end_id]
        return [self.start_id, *ids[: limit - 1]] if self.parlai else [self.start_id, *ids[: limit - 2], self.end_id]

    def pair(self, context: Sequence[int], candidate: Sequence[int], limit: int | None) -> tuple[list[int], list[int]]:
        """Join a context and a candidate, which are `plain`, as the tokenizer itself joins a pair.

        The longer one is truncated first, so neither should have been before.

        Args:
            limit: how many tokens in all; None for no limit.

        Returns:
            The two parts of the pair; what is between the texts ends the first.
        """
        first, second = (ids[len(self.before) : len(ids) - len(self.after)] for ids in (context, candidate))
        lengths = len(first), len(second)
        if limit is not None:
            room = max(limit - len(self.before) - len(self.between) - len(self.after), 0)
            if sum(lengths) > room:  # as the tokenizers library does it
                shorter = min(*lengths, room // 2)
                lengths = (shorter, room - shorter) if lengths[0] <= lengths[1] else (room - shorter, shorter)
        return [*self.before, *first[: lengths[0]], *self.between], [*second[: lengths[1]], *self.after]

    def decode(self, ids: Iterable[int]) -> str:
        """Decode token ids to text, without special tokens."""
        return self.compiled.decode([int(token) for token in ids])

    def add_tokens(self, tokens: Sequence[str]) -> None:
        """Add tokens, which are found in text and never split; an InputError says if the dictionary is ParlAI's."""
        if self.parlai is not None:
            raise InputError(
                f"The model's dictionary is ParlAI's and takes no more tokens, such as {tokens[0]}; remove "
                f"--special-tok-lst and --person-tokens."
            )
        self._forget()
        self.compiled.add_tokens([AddedToken(token, normalized=False) for token in tokens])

    def to_transformers(
        self, compiled: Tokenizer | None = None, **settings: Any
    ) -> "transformers.PreTrainedTokenizerFast":
        """Build transformers' tokenizer, for a Hugging Face folder; `compiled` is a variant with the same token ids."""
        unknown = getattr(self.compiled.model, "unk_token", None)
        special = self.special
        names = {"pad_token": special.pad, "cls_token": special.start, "sep_token": special.end}
        names |= {"unk_token": unknown} if unknown else {}
        mask = next((token for token in MASK_TOKENS if self.compiled.token_to_id(token) is not None), None)
        names |= {"mask_token": mask} if mask else {}
        return transformers.PreTrainedTokenizerFast(tokenizer_object=compiled or self.compiled, **names, **settings)
