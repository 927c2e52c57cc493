"""One batch of an agent, as ParlAI runs it."""

from parlai.core.message import Message


def example(text, label, candidates=None, key="labels"):
    """A message of a teacher, with one label."""
    message = {"id": "teacher", "text": text, key: (label,), "episode_done": True}
    return Message(message | ({"label_candidates": candidates} if candidates is not None else {}))


def act(agent, messages):
    """What the agent replies to a batch, as ParlAI's BatchWorld runs it."""
    clones = [agent.clone() for _ in messages]
    return agent.batch_act([clone.observe(message) for clone, message in zip(clones, messages, strict=True)])


def value(reply, name):
    """A metric of one reply."""
    return float(reply["metrics"][name].value())
