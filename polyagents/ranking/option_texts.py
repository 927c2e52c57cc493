"""Options of several texts each, such as an answer and the questions that it answers: {name: texts}.

The score of an option is a soft maximum of its texts' scores: log(mean(exp(k · score))) / k, between their mean and the
best of them, and the score itself of an only text. docs/faq.md compares the three.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from polyagents.errors import InputError
from polyagents.files.python_arguments import distinct, texts_of

SHARPNESS = 0.25  # k, as a share of the training loss's scale: measured on two FAQs and on intents (docs/faq.md)


@dataclass(frozen=True)
class OptionTexts:
    """Options, and the texts of all of them in one list.

    Attributes:
        names: O options.
        texts: T texts, the first option's first.
        owners: T indices of `names`.
    """

    names: list[str]
    texts: list[str]
    owners: list[int]

    @classmethod
    def of(cls, options: Mapping[str, str | Iterable[str]], name: str) -> "OptionTexts":
        """Read options; an InputError says if a name or a text is not a string, or an option has no text.

        Args:
            options: each name with its text, or its texts, of which equal ones count once; the name is not one of them.
            name: the argument's name in error sentences.
        """
        names, texts, owners = texts_of(options.keys(), f"The list of names in {name}"), list[str](), list[int]()
        for place, (option, given) in enumerate(options.items()):
            own = distinct(texts_of(given, f"{name}[{option!r}]", one=True))
            if not own:
                raise InputError(f"{name}[{option!r}] is an empty list; give the option a text, or remove it.")
            texts += own
            owners += [place] * len(own)
        return cls(names, texts, owners)

    def scores(self, of_texts: Tensor, logit_scale: float) -> Tensor:
        """Turn scores of texts [B, T] into those of options [B, O]; `logit_scale` is the model's, scores to logits."""
        k, count = SHARPNESS * logit_scale, len(self.names)
        owners = torch.tensor(self.owners, dtype=torch.long, device=of_texts.device)
        best = of_texts.new_full((len(of_texts), count), -torch.inf)
        best.scatter_reduce_(1, owners.expand_as(of_texts), of_texts, "amax")
        weights = ((of_texts - best[:, owners]) * k).exp()
        sums = torch.zeros_like(best).index_add_(1, owners, weights)
        return best + (sums / torch.bincount(owners, minlength=count)).log() / k
