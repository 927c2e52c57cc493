r"""Bi-, Cross- and Poly-encoder (Humeau et al., arXiv 1905.01969) as ParlAI agents.

    text -> text.py -> token ids -> encoder.py -> states + mask
                                         |-> context vectors     bi [B,D]      poly [B,M,D]
                                         |-> candidate vectors   [C,D] shared, or [B,C,D] per example
                                         \-> bi / poly / cross -> scores [B,C] -> agent.py -> ParlAI reply
    candidate vectors -> candidates.py (store) -> search.py -> top k

`-m polyagents:PolyEncoder` names an agent in any ParlAI command; `Ranker` is the Python API. The tensors' modules are
`polyagents.bi.BiEncoder`, `polyagents.poly.PolyEncoder` and `polyagents.cross.CrossEncoder`.
"""

from polyagents.errors import InputError
from polyagents.parlai_agents import compat

compat.apply()

from polyagents.index.store import CandidateStore  # noqa: E402
from polyagents.parlai_agents.ranker_agent import agent_class  # noqa: E402
from polyagents.parlai_agents.train_loop import patch_for_all_agents  # noqa: E402
from polyagents.pretraining.agent import PretrainAgent as Pretrain  # noqa: E402
from polyagents.ranker import Match, Ranker  # noqa: E402

patch_for_all_agents()

BiEncoder, PolyEncoder, CrossEncoder = map(agent_class, ("BiEncoder", "PolyEncoder", "CrossEncoder"))
__version__ = "0.1.0"
__all__ = ["BiEncoder", "CandidateStore", "CrossEncoder", "InputError", "Match", "PolyEncoder", "Pretrain", "Ranker"]
