"""Initial values measured on the texts of the task before training: `--codes-init kmeans`."""

from parlai.core.opt import Opt
from parlai.utils import logging
from torch import Tensor

from polyagents.models import codes_init
from polyagents.models.encoder import Encoder, token_states
from polyagents.models.model_options import CODES_INITS, KMEANS
from polyagents.parlai_agents.task_reader import TextPair, first_pairs
from polyagents.text.tokenizer import RankingTokenizer


class TaskTexts:
    """The first training examples of an agent's task, as token ids."""

    def __init__(self, opt: Opt, tokenizer: RankingTokenizer, text_truncate: int | None, label_truncate: int | None):
        """Read them with the options and the tokenizer of an agent, truncated as the agent reads them."""
        self.opt, self.tokenizer = opt, tokenizer
        self.text_truncate, self.label_truncate = text_truncate, label_truncate

    def codes(self, encoder: Encoder, m: int) -> Tensor:
        """Return the codes [m, D] for `--codes-init kmeans`.

        They are weights, which all processes of a training copy from the first (distributed.same_weights).

        Raises:
            InputError: there are no texts, too few, or outputs that are no numbers.
        """
        instead = f"give one of {', '.join(init for init in CODES_INITS if init != KMEANS)}"
        pairs = first_pairs(self.opt, codes_init.CONTEXTS, f"--codes-init {KMEANS}", instead)
        states = token_states(encoder, self._contexts(pairs), self.tokenizer.pad_id)
        logging.info(f"--codes-init {KMEANS}: {m} centres of {len(states)} tokens in {len(pairs)} contexts")
        return codes_init.centres(states, m)

    def _contexts(self, pairs: list[TextPair]) -> list[list[int]]:
        """Return each context as the model reads it, truncated."""
        encoded = self.tokenizer.encode([pair.context for pair in pairs])
        return [self.tokenizer.context(ids, self.text_truncate) for ids in encoded]
