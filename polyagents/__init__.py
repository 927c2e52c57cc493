r"""Bi-, Cross- and Poly-encoder (Humeau et al., arXiv 1905.01969) as ParlAI agents.

    text -> text.py -> token ids -> encoder.py -> states + mask
                                         |-> context vectors     bi [B,D]      poly [B,M,D]
                                         |-> candidate vectors   [C,D] shared, or [B,C,D] per example
                                         \-> bi / poly / cross -> scores [B,C] -> agent.py -> ParlAI reply
    candidate vectors -> candidates.py (store) -> search.py -> top k

`-m polyagents:PolyEncoder` names an agent in any ParlAI command; `Ranker` is the Python API. The tensors' modules are
`polyagents.bi.BiEncoder`, `polyagents.poly.PolyEncoder` and `polyagents.cross.CrossEncoder`.
"""

from polyagents import compat
from polyagents.errors import InputError

compat.apply()

from polyagents.agent import BiEncoderAgent as BiEncoder  # noqa: E402
from polyagents.agent import CrossEncoderAgent as CrossEncoder  # noqa: E402
from polyagents.agent import PolyEncoderAgent as PolyEncoder  # noqa: E402
from polyagents.candidates import CandidateStore  # noqa: E402
from polyagents.pretraining.agent import PretrainAgent as Pretrain  # noqa: E402
from polyagents.ranker import Match, Ranker  # noqa: E402
from polyagents.train_loop import mend_for_all  # noqa: E402

mend_for_all()

__version__ = "0.1.0"
__all__ = ["BiEncoder", "CandidateStore", "CrossEncoder", "InputError", "Match", "PolyEncoder", "Pretrain", "Ranker"]
