"""The options of Ranker.train with their types, for type checkers; scripts/option_types.py writes it."""

import os
from typing import Literal, TypedDict


class TrainOptions(TypedDict, total=False):
    """Options by name; another package's architecture gets its own as **options of the type dict[str, Any]."""

    init_model: str | os.PathLike[str] | None
    backbone: str | os.PathLike[str]
    backbone_bits: Literal["8", "4"] | None
    batchsize: int | None
    candidate_prompt: str
    candidates: Literal["batch", "inline", "batch+inline", "batch-all-cands"] | None
    chunk_tokens: int | None
    codes_init: Literal["normal", "uniform", "unit"]
    codes_learningrate: float | None
    compile: bool
    context_prompt: str
    cross_negatives: int | None
    distillation_loss: Literal["kl", "margin_mse"]
    dropout: float | None
    gradient_clip: float
    include_prompt: bool
    joint_head: Literal["linear", "dot", "cosine", "dot+late", "cosine+late", "tanh", "gelu", "relu"]
    keep_checkpoint: bool
    label_truncate: int
    learningrate: float | None
    load_from_checkpoint: bool
    log_every_n_steps: int
    lora_rank: int | None
    lr_scheduler: Literal["reduceonplateau", "linear", "cosine", "invsqrt", "none"]
    lr_scheduler_decay: float
    lr_scheduler_patience: int
    max_train_steps: int | None
    max_train_time: float | None
    num_epochs: float | None
    optimizer: Literal["adamw", "adam", "adamax"]
    output_scaling: float | str
    plain_texts: bool
    poly_attention_type: Literal["basic", "sqrt"]
    poly_n_codes: int
    polyencoder_type: Literal["codes", "n_first", "n_last", "n_last_and_first"]
    precision: Literal["auto", "fp32", "bf16", "fp16"]
    project: str
    reduction_type: Literal["first", "mean", "first_m"]
    report_to: str | None
    save_every_n_secs: float
    seed: int
    share_encoders: bool
    similarity: Literal["dot", "cosine"]
    teacher_model_file: str | os.PathLike[str] | None
    teacher_negatives: int
    text_truncate: int
    train_layers: Literal["all", "all_but_embeddings", "top4", "top"] | None
    update_freq: int
    validation_every_n_epochs: float | None
    validation_every_n_steps: int | None
    validation_max_exs: int | None
    validation_metric: Literal["hits@1", "hits@5", "hits@10", "mrr", "loss", "rank"]
    validation_patience: int
    vocabulary: str | os.PathLike[str] | None
    warmup_rate: float
    warmup_updates: int | None
    weight_decay: float
