"""ParlAI's agents as chat partners: how they are loaded, and how they reply to a whole chat at once."""

import contextlib
import random
from collections.abc import Iterable, Iterator, Sequence

import torch
from parlai.core.agents import Agent, add_datapath_and_model_args, create_agent
from parlai.core.message import Message
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.torch_ranker_agent import TorchRankerAgent

from polyagents.errors import InputError
from polyagents.parlai_patches import patches
from polyagents.parlai_patches.compat import quiet

CONTEXT = "context"  # ParlAI's id of who says a persona or topic


class ParlaiPartner:
    """An agent that forgets everything before it reads a chat, and reads it as if it had taken part."""

    def __init__(self, agent: Agent):
        self.agent = agent

    def reply(self, persona: str, messages: Sequence[str], seed: int) -> str:
        """Return the agent's next message.

        Args:
            persona: what the agent reads before the chat; "" if there is nothing.
            messages: what was said so far; the first, third, ... are the person's.
            seed: seeds Python's and torch's generators, for agents that draw.

        Raises:
            InputError: it has nothing left to say.
        """
        seed_all(seed)
        self.agent.reset()
        if persona:
            self.agent.observe(Message({"id": CONTEXT, "text": persona, "episode_done": False}))
        for place, text in enumerate(messages):
            if place % 2 == 0:
                self.agent.observe(Message({"id": "human", "text": text, "episode_done": False}))
            elif hasattr(self.agent, "self_observe"):  # other agents forget their own messages in any chat
                self.agent.self_observe(Message({"text": text, "episode_done": False}))
        with naming_the_flag([self.agent]):
            return self.agent.act().get("text") or ""


def command_options(arguments: Sequence[str]) -> Opt:
    """Parse the flags of ParlAI, of a task and of a model for a chat."""
    patches.apply()  # ParlAI's agents are not loaded through ours, which would apply it
    parser = ParlaiParser(True, True)
    parser.set_defaults(interactive_mode=True, datatype="valid", batchsize=1)
    return Opt(parser.parse_args(list(arguments)))


def load_agent(opt: Opt) -> Agent:
    """Load the model that the options name."""
    with quiet():
        return create_agent(opt, requireModelExists=True)


def load_other_agent(opt: Opt, model_file: str, model: str | None) -> Agent:
    """Load a model besides the one of --model-file, with the flags for all models.

    Args:
        model: the agent that is to load it; None for the one that wrote it.
    """
    own = ("model", "model_file", "dict_file")
    given = {flag: value for flag, value in opt["override"].items() if flag not in own} | {"interactive_mode": True}
    given |= {"model": model} if model else {}
    second = Opt(given | {"model_file": model_file, "override": given})
    add_datapath_and_model_args(second)
    return load_agent(second)


@contextlib.contextmanager
def naming_the_flag(agents: Iterable[Agent]) -> Iterator[None]:
    """Name the flag to change when a ranker of ParlAI's has no candidate left."""
    try:
        yield
    except IndexError as error:
        if any(isinstance(agent, TorchRankerAgent) for agent in agents):
            raise InputError(
                f"A model has said all of its candidates, and does not repeat itself ({error}); give "
                f"--repeat-blocking-heuristic false, or a larger --fixed-candidates-path."
            ) from error
        raise


def seed_all(seed: int) -> None:
    """Seed the generators that agents draw from."""
    random.seed(seed)
    torch.manual_seed(seed)


def written_candidates(opt: Opt) -> str:
    """Find the candidates of a model of ours; the list of its task is written if it is missing.

    Raises:
        InputError: the candidates cannot be found, or the model cannot be loaded.
    """
    return str(load_agent(opt).fixed_candidates_path)
