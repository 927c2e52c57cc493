"""Initial values measured on the texts of the task before training: `--output-scaling auto`, `--codes-init kmeans`."""

from parlai.core.opt import Opt
from parlai.utils import logging
from torch import Tensor

from polyagents.errors import InputError
from polyagents.models import codes_init, output_scaling
from polyagents.models.encoder import Encoder, token_states
from polyagents.models.model_options import CODES_INITS, KMEANS
from polyagents.parlai_agents.task_reader import TaskReader, TextPair
from polyagents.text.tokenizer import RankingTokenizer
from polyagents.training import distributed


class TaskTexts:
    """The first training examples of an agent's task, as token ids."""

    def __init__(self, opt: Opt, tokenizer: RankingTokenizer, text_truncate: int | None, label_truncate: int | None):
        """Read them with the options and the tokenizer of an agent, truncated as the agent reads them."""
        self.opt, self.tokenizer = opt, tokenizer
        self.text_truncate, self.label_truncate = text_truncate, label_truncate

    def output_scaling(self, encoder: Encoder) -> float:
        """Return the factor for `--output-scaling auto`.

        Raises:
            InputError: there are no texts, or outputs that cannot be scaled.
        """
        pairs = self._read(output_scaling.EXAMPLES, "--output-scaling auto", "give a number")
        labels = self.tokenizer.encode([pair.label for pair in pairs if pair.label])
        texts = self._contexts(pairs) + [self.tokenizer.candidate(ids, self.label_truncate) for ids in labels]
        # One factor for all processes: machines round differently.
        factor = distributed.gathered(output_scaling.factor(encoder, texts, self.tokenizer.pad_id))[0]
        logging.info(f"--output-scaling auto: {factor}, for a deviation of {output_scaling.BERT_DEVIATION}")
        return factor

    def codes(self, encoder: Encoder, m: int) -> Tensor:
        """Return the codes [m, D] for `--codes-init kmeans`.

        They are weights, which all processes of a training copy from the first (distributed.same_weights).

        Raises:
            InputError: there are no texts, too few, or outputs that are no numbers.
        """
        instead = f"give one of {', '.join(init for init in CODES_INITS if init != KMEANS)}"
        pairs = self._read(codes_init.CONTEXTS, f"--codes-init {KMEANS}", instead)
        states = token_states(encoder, self._contexts(pairs), self.tokenizer.pad_id)
        logging.info(f"--codes-init {KMEANS}: {m} centres of {len(states)} tokens in {len(pairs)} contexts")
        return codes_init.centres(states, m)

    def _read(self, count: int, flag: str, instead: str) -> list[TextPair]:
        if self.opt.get("interactive_mode") or not self.opt.get("task"):
            raise InputError(f"{flag} measures the training examples of a task, and no task is given; {instead}.")
        pairs = TaskReader(Opt(self.opt | {"datatype": "train"}), seed=0).read(count)
        if not pairs:
            raise InputError(f"{flag} finds no texts in --task {self.opt['task']}; {instead}.")
        return pairs

    def _contexts(self, pairs: list[TextPair]) -> list[list[int]]:
        """Return each context as the model reads it, truncated."""
        encoded = self.tokenizer.encode([pair.context for pair in pairs])
        return [self.tokenizer.context(ids, self.text_truncate) for ids in encoded]
