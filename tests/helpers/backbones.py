"""Tiny random Hugging Face models of several families, saved as folders that `--backbone` takes."""

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    GPT2Config,
    GPT2Model,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    set_seed,
)

SENTENCES = [
    "where is canada",
    "canada is in north america",
    "hi , how are you ?",
    "i am fine thank you",
    "my dog barks at the mailman",
    "she plays the piano every evening",
]
FAMILIES = ("bert", "distilbert", "roberta", "modernbert", "gpt2", "minilm")
# Later ones, with rotary positions: decoders, of which Gemma's sees both sides in its embedder, and two encoders.
DECODERS = ("llama", "mistral", "qwen3", "gemma3_text")
LATER = (*DECODERS, "embedding_gemma", "eurobert", "nomic_bert")


def word_piece() -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = sorted(set(" ".join(SENTENCES).split()))
    letters = sorted(set("".join(words)))
    # A trainer would number its pieces in the order of a hash table: another model in every process.
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words])
    tokenizer = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{f"{k}_token": v for k, v in names.items()})


def byte_level(special: dict[str, str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel()
    from tokenizers.decoders import ByteLevel

    tokenizer.decoder = ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(dict.fromkeys(special.values())),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


ROBERTA = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
MODERNBERT = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
DECODER = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}  # Qwen3's, which has no beginning
GPT2 = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}  # no pad token, as in the real one


def save(family: str, folder: Path) -> str:
    """Write a model of a family and its tokenizer, random but the same every time."""
    set_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    if family in ("bert", "minilm"):
        tokenizer = word_piece()
        model = BertModel(BertConfig(vocab_size=len(tokenizer), **small))
    elif family == "distilbert":
        tokenizer = word_piece()
        model = DistilBertModel(
            DistilBertConfig(vocab_size=len(tokenizer), dim=32, n_layers=2, n_heads=2, hidden_dim=64)
        )
    elif family == "roberta":
        tokenizer = byte_level(ROBERTA)
        ids = {"pad_token_id": tokenizer.pad_token_id, "type_vocab_size": 1, "max_position_embeddings": 514}
        model = RobertaModel(RobertaConfig(vocab_size=len(tokenizer), **ids, **small))
    elif family == "modernbert":
        tokenizer = byte_level(MODERNBERT)
        ids = {
            "pad_token_id": tokenizer.pad_token_id,
            "cls_token_id": tokenizer.cls_token_id,
            "sep_token_id": tokenizer.sep_token_id,
            "bos_token_id": tokenizer.cls_token_id,
            "eos_token_id": tokenizer.sep_token_id,
        }
        model = ModernBertModel(ModernBertConfig(vocab_size=len(tokenizer), **ids, **small))
    elif family in LATER:
        tokenizer = byte_level(DECODER)
        own = {"num_key_value_heads": 1, "head_dim": 16, "sliding_window": 8} if family != "nomic_bert" else {}
        own |= {"use_bidirectional_attention": True} if family == "embedding_gemma" else {}
        ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
        kind = "gemma3_text" if family == "embedding_gemma" else family
        model = AutoModel.from_config(AutoConfig.for_model(kind, vocab_size=len(tokenizer), **ids, **small, **own))
    else:
        tokenizer = byte_level(GPT2)
        ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        model = GPT2Model(GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, **ids))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
