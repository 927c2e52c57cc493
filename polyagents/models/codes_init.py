"""The initial codes of a poly-encoder: random, or k-means centres of the states that they will attend to."""

import torch
from torch import Tensor, nn

from polyagents.errors import InputError

# Contexts whose states are clustered, some 20,000 tokens of dialogue: enough for 64 codes. FAISS draws 256
# states for each code at most, and needs 39 at least (its Clustering.h).
CONTEXTS = 256
STATES_OF_A_CODE = 256


def drawn(init: str, m: int, width: int) -> Tensor:
    """Draw random codes.

    Args:
        init: "normal", N(0, 0.02); "uniform", U(0, 1); "unit", N(1/sqrt(D), 1), as chijames/Poly-Encoder draws them;
            "kmeans" draws as "normal" does, until the training puts `centres` in their place.
        width: D.

    Returns:
        [m, D].
    """
    codes = torch.empty(m, width)
    if init == "uniform":
        return nn.init.uniform_(codes)
    if init == "unit":
        return nn.init.normal_(codes, mean=width**-0.5, std=1.0)
    return nn.init.normal_(codes, std=0.02)


def centres(states: Tensor, m: int) -> Tensor:
    """Compute the k-means centres of states; the same states give the same centres on the same machine.

    Args:
        states: [N, D], of the tokens of some contexts.

    Returns:
        [m, D] fp32 on the CPU.

    Raises:
        InputError: there are fewer states than centres, or some states are infinite or not a number.
    """
    import faiss  # takes 0.14 s, and few models need it

    if len(states) < m:
        raise InputError(
            f"--codes-init kmeans found {len(states)} tokens in the contexts that it clusters, too few for "
            f"--poly-n-codes {m}; lower it, or give another --codes-init."
        )
    if not torch.isfinite(states).all():
        raise InputError("--codes-init kmeans: the encoder's outputs are not finite; give another --backbone.")
    clusters = faiss.Kmeans(
        states.size(1), m, seed=0, min_points_per_centroid=1, max_points_per_centroid=STATES_OF_A_CODE
    )
    clusters.train(states.float().cpu().contiguous().numpy())
    return torch.from_numpy(clusters.centroids)
