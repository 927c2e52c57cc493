"""The tokenizer of a Hugging Face model, completed with the special tokens that it lacks."""

import copy
import glob
import os
from dataclasses import asdict

import transformers
from tokenizers import AddedToken, Tokenizer, normalizers
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from polyagents.backbone_files import CONFIG, TOKENIZERS, check_files, located_backbone, read_config
from polyagents.errors import InputError, first_line
from polyagents.files.json_files import read_json
from polyagents.network import is_offline
from polyagents.surroundings import silent_transformers
from polyagents.text.tokenizer import RankingTokenizer, SpecialTokens, no_panics, try_out

PLACES = {  # where a tokenizer may be, apart from the hub
    "--backbone": "a folder with config.json, weights and tokenizer.json, or scratch:tiny|mini|base",
    "--vocabulary": "a folder with tokenizer.json, such as polyagents build_vocabulary makes",
}


def load_tokenizer(backbone: str, flag: str = "--backbone") -> RankingTokenizer:
    """Load the fast tokenizer of a hub name or folder, and add the special tokens that it lacks.

    Args:
        flag: the flag that gave it, for the message of an error.

    Raises:
        InputError: there is no fast tokenizer.
    """
    backbone = located_backbone(backbone)
    has_own = not os.path.isdir(backbone) or any(
        os.path.exists(os.path.join(backbone, name))
        for name in ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")
    )
    is_local = os.path.exists(backbone)
    try:
        if not has_own:
            raise OSError("no tokenizer file")
        if not is_local:
            is_offline()  # asked first: the hub's client would try for a minute
        config = tokenizer_config(backbone)
        with silent_transformers(), no_panics():
            loaded = transformers.AutoTokenizer.from_pretrained(
                backbone, use_fast=True, trust_remote_code=False, config=config
            )
            tokenizer: Tokenizer = copy.deepcopy(loaded.backend_tokenizer)
            if flag == "--backbone":
                refuse_other_vocabulary(tokenizer, config, backbone)
            if lowers_case(backbone):
                own = filter(None, [tokenizer.normalizer])
                tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
            before, after = tokens_around(tokenizer)
            newline = native_newline(tokenizer)
            try_out(tokenizer)
    except InputError:
        raise
    except Exception as error:  # transformers raises a dozen kinds, by version
        if not is_local and is_offline():
            raise InputError(
                f"{flag} {backbone} is not a folder here and not in the hub's cache, and the hub cannot be reached "
                f"from here, or HF_HUB_OFFLINE is set. Load it once with a network, or give {PLACES[flag]}."
            ) from error
        raise InputError(
            f"{flag} {backbone}: no fast tokenizer found there ({first_line(error)}). Give the hub name of a "
            f"model, {PLACES[flag]}."
        ) from error
    start = before or loaded.cls_token or loaded.bos_token
    end = after or loaded.sep_token or loaded.eos_token
    taken = (start, end, loaded.unk_token)  # GPT-2 is often given its end of text as padding, which masks it
    special = SpecialTokens(
        pad="[PAD]" if loaded.pad_token in (None, *taken) else loaded.pad_token,
        start=start or end or "[S]",
        end=end or start or "[S]",
        newline=newline or "[NEWLINE]",
    )
    new = [token for token in asdict(special).values() if tokenizer.token_to_id(token) is None]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in new])
    return RankingTokenizer(tokenizer, special)


def refuse_other_vocabulary(tokenizer: Tokenizer, config: "transformers.PretrainedConfig", backbone: str) -> None:
    """Refuse a tokenizer with words that its model has no embedding for: they would be read as the end of a text.

    Tokens that somebody has added, such as one for padding, may lack theirs.
    """
    words = tokenizer.get_vocab_size(with_added_tokens=False)
    rows = getattr(config.get_text_config(), "vocab_size", None)
    if rows is not None and words > rows:
        raise InputError(
            f"--backbone {backbone} has a tokenizer of {words:,} tokens, and {rows:,} embeddings (vocab_size in its "
            f"{CONFIG}), so they are not of one model; give the model's own tokenizer."
        )


def lowers_case(folder: str) -> bool:
    """Tell whether sentence-transformers has texts in lower case, whatever the folder's tokenizer does."""
    for file in glob.glob(os.path.join(glob.escape(folder), "sentence_*_config.json")):
        try:
            settings = read_json(file)
        except (OSError, ValueError) as error:
            raise InputError(f"{file} cannot be read ({first_line(error)}); download the folder again.") from error
        if isinstance(settings, dict) and settings.get("do_lower_case") is True:
            return True
    return False


def tokenizer_config(backbone: str) -> "transformers.PretrainedConfig":
    """Read the configuration that helps to find a tokenizer's class, after a check that only such a class is named.

    Raises:
        InputError: the model is quantised, or its configuration cannot be used.
        OSError: there is none on the hub.
        ValueError: something else than a tokenizer would be loaded.
    """
    alone = os.path.isdir(backbone) and not os.path.lexists(os.path.join(backbone, CONFIG))
    if alone:
        check_files(backbone)
    config = transformers.PretrainedConfig() if alone else read_config(backbone)
    for name in (get_tokenizer_config(backbone).get("tokenizer_class"), getattr(config, "tokenizer_class", None)):
        if name is not None and not TOKENIZERS.fullmatch(str(name)):  # AutoModel would read config.json again
            raise ValueError(f"its tokenizer_class is {name}")
    return config


def native_newline(tokenizer: Tokenizer) -> str | None:
    """Return the tokenizer's own token for a line end: byte-level vocabularies have one, BERT's has none."""
    encoded = tokenizer.encode("\n", add_special_tokens=False)
    lossless = len(encoded.ids) == 1 and tokenizer.decode(encoded.ids, skip_special_tokens=False) == "\n"
    return encoded.tokens[0] if lossless else None


def tokens_around(tokenizer: Tokenizer) -> tuple[str | None, str | None]:
    """Return the tokens that the tokenizer itself puts before and after a text; None if it puts none.

    Qwen3-Embedding takes its vector from the `<|endoftext|>` that its tokenizer appends, though its eos_token is
    another.
    """
    tokenizer.no_padding()  # MiniLM's tokenizer.json has every text padded to 128 tokens
    encoded = tokenizer.encode("a")
    tokens, special = encoded.tokens, encoded.special_tokens_mask
    return (tokens[0] if special[0] else None), (tokens[-1] if special[-1] else None)
