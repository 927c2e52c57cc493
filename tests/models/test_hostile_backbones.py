"""What a stranger's backbone folder may decide: shapes and numbers, never code; anything else is one sentence."""

import json
import shutil
import sys
import types

import pytest
import torch
import transformers
from hostile import IRREGULAR, broken_tokenizers, irregular
from tokenizers import Tokenizer, models, pre_tokenizers

from polyagents import InputError
from polyagents.backbone_files import config_of
from polyagents.model_files import sentence_transformers_import
from polyagents.model_files.building import vocabulary_of
from polyagents.models.backbone import load_backbone
from polyagents.models.model_options import EncoderOptions
from polyagents.text.pretrained import load_tokenizer

EVIL = "stranger/evil"
# What reaches code, kernels, quantisers, or other repositories, in versions of transformers; each is of no effect.
NO_EFFECT = [
    {name: EVIL}
    for name in (
        *("_attn_implementation", "attn_implementation", "_attn_implementation_internal", "_experts_implementation"),
        *(
            "experts_implementation",
            "_experts_implementation_internal",
            "_name_or_path",
            "name_or_path",
            "_commit_hash",
        ),
        *("attention_implementation", "transformers_weights", "configuration_files", "kernel_config", "use_kernels"),
        *("custom_pipelines", "torch_dtype", "dtype", "backbone", "base_model_tp_plan", "distributed_config"),
        *("architectures", "adapter_path", "vocab_file", "gguf_file", "custom_generate", "model_name", "problem_type"),
    )
]
NO_EFFECT += [
    {"attn_implementation": {"": EVIL, "text_config": EVIL}, "_attn_implementation": [EVIL]},
    {"auto_map": {"AutoConfig": f"{EVIL}--x.C", "AutoModel": f"{EVIL}--x.M", "AutoTokenizer": [f"{EVIL}--x.T", None]}},
    {"auto_map": 5},
    {"text_config": {"model_type": "bert", "_attn_implementation": EVIL}, "vision_config": {"auto_map": EVIL}},
    {"use_timm_backbone": True, "use_pretrained_backbone": True, "backbone_config": {"model_type": "resnet"}},
    {"quantization_config": None, "per_layer_config": {"0": {"_attn_implementation": EVIL}}},
    {"use_kernels": True, "kernel_config": {"kernel_mapping": {"RMSNorm": f"{EVIL}:X"}}},
    {"torch_dtype": "float16"}, {"dtype": "int8"}, {"dtype": "x"}, {"dtype": ["float32"]}, {"torch_dtype": "__doc__"},
    {"chunk_size_feed_forward": 7}, {"chunk_size_feed_forward": -1}, {"return_dict": False}, {"return_dict": 0},
    {"num_labels": 10**7}, {"num_labels": -1}, {"num_labels": "x"}, {"id2label": {"x": "y"}}, {"id2label": 5},
    {"label2id": []}, {"output_hidden_states": True}, {"output_attentions": True}, {"output_attentions": "x"},
    {"problem_type": 5}, {"transformers_version": "9" * 400}, {"pruned_heads": {"0": [0]}}, {"torchscript": True},
    {"base_model_tp_plan": {"x": EVIL}}, {"to_dict": EVIL}, {"__class__": EVIL}, {"sub_configs": EVIL},
    {"_auto_class": EVIL}, {"is_composition": EVIL}, {"gradient_checkpointing": True},
]  # fmt: skip
REFUSED = [
    {"quantization_config": {"quant_method": method, "load_in_4bit": True, "bits": 4}}
    for method in ("bitsandbytes", "gptq", "awq", "hqq", "stranger", 5)
]
REFUSED += [
    {"text_config": {"quantization_config": {"quant_method": "gptq"}}}, {"quantization_config": EVIL},
    {"model_type": EVIL}, {"model_type": 5}, {"model_type": None}, {"model_type": ["bert"]}, {"model_type": "__doc__"},
    {"hidden_size": "x"}, {"hidden_size": 10**30}, {"hidden_size": [32]}, {"hidden_size": None}, {"hidden_size": 33},
    {"num_hidden_layers": 10**9}, {"num_hidden_layers": -1}, {"num_hidden_layers": 0}, {"num_hidden_layers": "2"},
    {"num_attention_heads": 0}, {"num_attention_heads": 3}, {"num_attention_heads": 10**7}, {"hidden_act": EVIL},
    {"hidden_act": 5}, {"vocab_size": -5}, {"layer_norm_eps": float("nan")}, {"hidden_dropout_prob": 2},
    {"max_position_embeddings": "many"}, {"attention_probs_dropout_prob": [0.1]}, {"intermediate_size": 10**12},
    {"is_encoder_decoder": True}, {"pad_token_id": "x"}, {"type_vocab_size": -1},
]  # fmt: skip
CLASSES = ["AutoModel", "BertModel", "Trainer", "AutoProcessor", "pipeline", "AutoConfig", 5, ["AutoModel"], {"a": 1}]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of a tiny BERT, by its path."""
    folder = tmp_path_factory.mktemp("made")
    words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"])}
    compiled = Tokenizer(models.WordLevel(words, "[UNK]"))
    compiled.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=compiled, **names).save_pretrained(folder)
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    transformers.BertModel(transformers.BertConfig(vocab_size=6, **shape)).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of the folder."""
    return shutil.copytree(made, tmp_path / "backbone")


@pytest.fixture
def asked(monkeypatch):
    """What transformers asks for: kernels, code and files of the hub; each is one line."""
    found = []

    def recorder(name, answer=None):
        def record(*arguments, **named):
            found.append(f"{name} {arguments}")
            if answer is None:
                raise OSError(f"{name} was called")
            return answer

        return record

    fake = types.ModuleType("kernels")
    fake.get_kernel = recorder("kernels.get_kernel")
    fake.__getattr__ = lambda name: found.append(f"kernels.{name}")
    monkeypatch.setitem(sys.modules, "kernels", fake)
    from transformers.integrations import hub_kernels

    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda *versions: True)
    monkeypatch.setattr(hub_kernels, "get_kernel_hub", fake.get_kernel, raising=False)
    for name in ("auto_factory", "configuration_auto", "tokenization_auto"):
        module = getattr(__import__(f"transformers.models.auto.{name}").models.auto, name)
        monkeypatch.setattr(module, "get_class_from_dynamic_module", recorder("code"))
    for name in ("hf_hub_download", "snapshot_download"):
        monkeypatch.setattr(transformers.utils.hub, name, recorder("hub"))
    monkeypatch.setattr("builtins.input", recorder("input"))
    return found


def load(folder):
    """Load tokenizer and backbone as a training does; the backbone's outputs."""
    tokenizer = load_tokenizer(str(folder))
    options = EncoderOptions.read({"backbone": str(folder)})
    backbone = load_backbone(options, vocabulary_of(tokenizer), False).eval()
    with torch.no_grad():
        return backbone(torch.tensor([tokenizer.encode(["a b a"])[0]])).last_hidden_state


def refused(folder):
    """The sentence in which a folder is refused; None if it is used."""
    try:
        load(folder)
    except InputError as error:
        assert "\n" not in str(error)
        return str(error)
    return None


def changed(folder, name, **values):
    """Replace fields of a JSON file of a folder."""
    path = folder / name
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | values))


@pytest.mark.slow
def test_what_names_code_has_no_effect(folder, asked):
    good, expected = (folder / "config.json").read_text(), load(folder)
    together = [{}]  # as few configurations as have room for all
    for values in NO_EFFECT:
        if together[-1].keys() & values.keys():
            together.append({})
        together[-1].update(values)
    for values in together:
        (folder / "config.json").write_text(json.dumps(json.loads(good) | values))
        assert torch.equal(load(folder), expected), values
    assert not asked


def test_what_no_encoder_has_is_refused(folder, asked):
    good = (folder / "config.json").read_text()
    for values in REFUSED:
        (folder / "config.json").write_text(json.dumps(json.loads(good) | values))
        sentence = refused(folder)
        assert sentence, values
        assert "quantization_config" not in values or "is quantised" in sentence
    for content in (b"", b"{", b"[]", b"5", b"null", b"\xff\xfe", b'{"a":' * 2_000, b'"bert"'):
        (folder / "config.json").write_bytes(content)
        assert refused(folder), content
    assert not asked


@pytest.mark.parametrize("name", ["tokenizer_config.json", "config.json"])
def test_only_a_tokenizer_is_loaded_as_one(name, folder, asked):
    good = (folder / name).read_text()
    for kind in CLASSES:
        changed(folder, name, tokenizer_class=kind, auto_map={"AutoTokenizer": [f"{EVIL}--x.T", f"{EVIL}--x.F"]})
        changed(folder, "config.json", _attn_implementation=EVIL)
        refused(folder)
        (folder / name).write_text(good)
    assert not asked


def test_adapters_of_another_model_are_not_followed(folder, asked):
    changed(folder, "adapter_config.json", base_model_name_or_path=EVIL, peft_type="LORA", megatron_core="this")
    assert "adapters of peft" in refused(folder)
    (folder / "config.json").unlink()
    assert "adapters of peft" in refused(folder)
    assert not asked


@pytest.mark.parametrize(
    "kind", ["albert", "deberta-v2", "funnel", "gpt2", "llama", "longformer", "modernbert", "mpnet"]
)
def test_a_configuration_loses_nothing_else(kind):
    config = transformers.CONFIG_MAPPING[kind]()
    assert config_of(json.loads(config.to_json_string())).to_dict() == config.to_dict()


def test_a_configuration_within_another_is_read_alike():
    inner = {"model_type": "bert", "hidden_size": 16, "num_attention_heads": 2, "_attn_implementation": EVIL}
    config = config_of(
        {"model_type": "encoder-decoder", "encoder": inner, "decoder": inner | {"auto_map": {"x": EVIL}}}
    )
    assert config.encoder.hidden_size == 16 and config.encoder._attn_implementation is None
    assert EVIL not in json.dumps(config.to_dict(), default=str)
    with pytest.raises(InputError, match="hidden_layers is 1000000000"):
        config_of({"model_type": "encoder-decoder", "encoder": inner | {"num_hidden_layers": 10**9}, "decoder": inner})


@pytest.mark.parametrize("what", IRREGULAR)
def test_what_is_not_a_file_is_not_waited_for(what, folder):
    for name in ("config.json", "tokenizer.json", "model.safetensors", "tokenizer_config.json", "pytorch_model.bin"):
        good = (folder / name).read_bytes() if (folder / name).exists() else None
        irregular(folder / name, what)
        assert name in refused(folder)
        (folder / name).unlink()
        if good is not None:
            (folder / name).write_bytes(good)


@pytest.mark.slow
def test_tokenizers_that_cannot_be_built(folder):
    good = json.loads((folder / "tokenizer.json").read_text())
    for content in broken_tokenizers(good):
        (folder / "tokenizer.json").write_text(json.dumps(content))
        refused(folder)


ODD = (5, None, [], {}, "x", True, [["mean"]], [[]], {"a": 1}, -1, 1e308, "../../etc/passwd", [5], [{}])


def test_odd_values_in_a_folder_of_sentence_transformers(folder, asked):
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "1_Pooling").mkdir()
    pooling = {"pooling_mode": "mean", "word_embedding_dimension": 8}
    files = {"modules.json": modules, "1_Pooling/config.json": pooling}
    files["config_sentence_transformers.json"] = {"prompts": {"query": "q: "}, "default_prompt_name": "query"}

    def read():
        try:
            assert sentence_transformers_import.reduction_of(str(folder)) in ("first", "mean")
            assert all(isinstance(text, str) for text in sentence_transformers_import.prompts_of(str(folder)).values())
        except InputError as error:
            assert "\n" not in str(error)

    def write():
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content))

    write()
    read()
    for name, content in files.items():
        cases = [content | {key: value} for key in content for value in ODD] if isinstance(content, dict) else []
        cases += [[content[0], content[1] | {key: value}] for key in content[1] for value in ODD] if not cases else []
        cases += [{**pooling, f"pooling_mode_{mode}": value} for mode in ("mean_tokens", "evil") for value in ODD]
        for changed_content in (*cases, *ODD):
            (folder / name).write_text(json.dumps(changed_content))
            read()
        write()
    assert not asked


def test_classes_that_modules_json_names_are_not_imported(folder, asked, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    (folder / "modeling_evil.py").write_text("class Pooling:\n    pass\n")
    for kind in ("modeling_evil.Pooling", "modeling_evil.Transformer", f"{EVIL}--modeling_evil.Pooling", "os.system"):
        modules = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, path in enumerate(("", "1_Pooling"))]
        (folder / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(InputError):
            sentence_transformers_import.reduction_of(str(folder))
        load(folder)
        assert "modeling_evil" not in sys.modules and not asked
