"""The interface that all architectures share."""

import abc
from typing import ClassVar

from torch import nn

from polyagents.models.encoder import Encoder
from polyagents.models.model_options import RankingOptions


class Architecture(nn.Module, abc.ABC):
    """The base of both kinds of architectures: two towers (two_towers.py), and joint ones (joint.py).

    Attributes:
        short_name: the name that `polyagents train_model -m` takes.
        label: the name in messages and reports, such as "poly-encoder".
        options_type: the class of its options; its fields are the flags of its agent.
        options: the values of these options.
        logit_scale: the factor by which the training loss multiplies the scores: 1 for dot products.
    """

    short_name: ClassVar[str]
    label: ClassVar[str]
    options_type: ClassVar[type[RankingOptions]]
    logit_scale: float = 1.0

    @abc.abstractmethod
    def __init__(self, encoder: Encoder, options: RankingOptions):
        """Build it around an encoder; the options are of its `options_type`."""
        super().__init__()
        self.options = options
