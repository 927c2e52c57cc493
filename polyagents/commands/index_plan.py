"""`polyagents index plan`: a table of the disk, memory and time that indexes will take, by number of candidates."""

from collections.abc import Mapping
from typing import Any

from polyagents.arguments import model_overrides, refuse_given
from polyagents.console import markdown, say
from polyagents.errors import InputError

OF_OTHERS = ("index_dir", "index_url", "contexts_file", "ray")


def plan(opt: Mapping[str, Any]) -> None:
    """Print a row for each number of candidates and type of index; an InputError says what is missing or impossible."""
    refuse_given(opt, OF_OTHERS, "is not for polyagents index plan, which computes what a folder would take.")
    if not (opt["candidates"] or opt["candidates_file"]):
        raise InputError("polyagents index plan needs --candidates, such as 100k,5m, or --candidates-file.")
    if bool(opt["width"]) == bool(opt["model_file"]):
        raise InputError("polyagents index plan needs either --width, or --model-file for the width of its vectors.")
    # These take seconds: errors in flags are reported before.
    from polyagents.index.builder import SAMPLE, CandidateEncoder, seconds_to_encode
    from polyagents.index.candidate_records import candidates_of
    from polyagents.index.faiss_index import INDEX_TYPES, reason_against
    from polyagents.index.filters import declared_fields
    from polyagents.index.plan import SOURCE, TEXT, Plan
    from polyagents.index.shard import SHARD, row_bytes
    from polyagents.index.texts import ListedTexts
    from polyagents.ranker import Ranker
    from polyagents.ranking.two_tower_model import two_towers

    fields, file, stored_as = declared_fields(opt["fields"]), opt["candidates_file"], opt["stored_as"] or "bf16"
    texts = candidates_of(file, fields) if file else ListedTexts([TEXT])
    sample, width, model_bytes, encoding = texts.part(0, SHARD), opt["width"], 0, None
    if opt["model_file"]:
        model = two_towers(Ranker.load(opt["model_file"], **model_overrides(opt)).model)
        model_bytes = sum(weights.nbytes for weights in model.module.parameters())
        some = sample[:: max(len(sample) // SAMPLE, 1)] if file else sample * SAMPLE
        encoding, width = seconds_to_encode(some, CandidateEncoder.of(model, stored_as).encode)
    each = row_bytes(sample, width, stored_as, texts.records(0, SHARD), fields)
    rows = []
    for count in opt["candidates"] or (len(texts),):
        for index_type in (opt["index_type"],) if opt["index_type"] else INDEX_TYPES:
            if (reason := reason_against(index_type, count, width)) is not None:
                if opt["index_type"]:
                    raise InputError(reason)
                continue
            row = {"candidates": count, "width": width, "index": index_type}
            row |= Plan(count, width, index_type, each, model_bytes).figures()
            rows.append(row | ({} if encoding is None else {"encoding s": encoding * count}))
    print(markdown(rows))
    say(SOURCE)
