"""Values of training batches, which a GPU may not have computed yet. They are read late, and many of them at once."""

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor


class LateValues(Mapping[str, list[float]]):
    """Values by name, a list of n each, which stay on their device until one is read.

    A read makes the host wait for all that the device has to do, so whoever wants the values of several batches asks
    for them with `read_all`, which waits once.
    """

    def __init__(self, values: Mapping[str, Tensor]):
        """Take values by name, [n] each; they become fp32, in which whole numbers below 16,777,216 are exact."""
        self._names = list(values)
        self._unread = torch.stack([value.detach().float() for value in values.values()]) if values else None
        self._read: dict[str, list[float]] = {}

    def __getitem__(self, name: str) -> list[float]:
        """Return the n values of a name; reads them if necessary."""
        read_all([self])
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, which are known without reading."""
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read_all(many: Iterable[LateValues]) -> None:
    """Read the values of several batches, and wait for the device once."""
    unread = {id(one): one for one in many if one._unread is not None}
    tensors = [one._unread for one in unread.values() if one._unread is not None]
    if not tensors:
        return
    numbers = torch.cat([tensor.flatten() for tensor in tensors]).tolist()
    start = 0
    for one, tensor in zip(unread.values(), tensors, strict=True):
        count = tensor.size(1)
        for name in one._names:
            one._read[name] = numbers[start : start + count]
            start += count
        one._unread = None
