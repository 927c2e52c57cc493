"""What ParlAI's teachers tell."""

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.teachers import create_task_agent_from_taskname

from polyagents.parlai_patches import patches

patches.apply()


def teacher(task, datatype, datapath="/nowhere", **more):
    """What `-t TASK -dt DATATYPE -dp DATAPATH` finds."""
    opt = ParlaiParser(True, False).parse_kwargs(task=task, datatype=datatype, datapath=str(datapath))
    return create_task_agent_from_taskname(Opt(opt | more))[0]


def told(task, datatype, datapath="/nowhere", **more):
    """All messages of a teacher, once; of a training set in its order."""
    found, messages = teacher(task, datatype.replace("train", "train:ordered"), datapath, **more), []
    while not found.epoch_done():
        messages.append(found.act())
    assert found.num_examples() == len(messages)
    return messages


def label(message):
    """The one label, in training as in evaluation."""
    (text,) = message.get("labels") or message["eval_labels"]
    return text


def plain(message):
    """What two teachers should agree in."""
    candidates = message.get("label_candidates")
    return message["text"], label(message), candidates and list(candidates), message["episode_done"]
