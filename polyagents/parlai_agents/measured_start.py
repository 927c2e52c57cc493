"""`--output-scaling auto`: the factor is measured on texts of the task before training."""

from parlai.core.opt import Opt
from parlai.utils import logging

from polyagents.errors import InputError
from polyagents.models import output_scaling
from polyagents.models.encoder import Encoder
from polyagents.parlai_agents.task_reader import TaskReader
from polyagents.text.tokenizer import RankingTokenizer
from polyagents.training import distributed


def measured_scaling(
    encoder: Encoder, opt: Opt, tokenizer: RankingTokenizer, text_truncate: int | None, label_truncate: int | None
) -> float:
    """Return the factor, by the first training examples of the task, truncated as the agent reads them.

    Raises:
        InputError: there are no texts, or outputs that cannot be scaled.
    """
    flag = "--output-scaling auto"
    if opt.get("interactive_mode") or not opt.get("task"):
        raise InputError(f"{flag} measures the training examples of a task, and no task is given; give a number.")
    pairs = TaskReader(Opt(opt | {"datatype": "train"}), seed=0).read(output_scaling.EXAMPLES)
    if not pairs:
        raise InputError(f"{flag} finds no texts in --task {opt['task']}; give a number.")
    texts = [tokenizer.context(ids, text_truncate) for ids in tokenizer.encode([pair.context for pair in pairs])]
    labels = tokenizer.encode([pair.label for pair in pairs if pair.label])
    texts += [tokenizer.candidate(ids, label_truncate) for ids in labels]
    # One factor for all processes: machines round differently.
    factor = distributed.gathered(output_scaling.factor(encoder, texts, tokenizer.pad_id))[0]
    logging.info(f"{flag}: {factor}, for a deviation of {output_scaling.BERT_DEVIATION}")
    return factor
