"""The ids and fields of candidates as columns: tensors that a shard maps into memory, and the mask of a filter.

Names of the tensors: `ids` and `id_ends`; `field.NAME` [n], for texts int32 codes with the different texts in
`words.NAME` and `word_ends.NAME`, in the order of their bytes, so that a bound of a text is one of its code. Without a
value a code is -1, a bool -1 (int8), a float NaN and an int the smallest of 64 bits.
"""

import bisect
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyagents.files.hashing import utf8
from polyagents.index.filters import Fields, Filter, Value, sort_key

NO_INT = -(2**63)
DTYPES = {"text": torch.int32, "int": torch.int64, "float": torch.float64, "bool": torch.int8}
COMPARE = {">=": np.greater_equal, ">": np.greater, "<=": np.less_equal, "<": np.less}


class Record(NamedTuple):
    """A candidate with an id of the user's own.

    Attributes:
        values: of the declared fields, in their order; None without a value.
    """

    id: str
    text: str
    values: tuple[Value | None, ...] = ()


class Strings:
    """Byte strings one after the other, with the end of each."""

    def __init__(self, content: Tensor, ends: Tensor):
        self.content, self.ends = content, ends

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: int) -> bytes:
        return self.part(place, place + 1)[0]

    def part(self, start: int, stop: int) -> list[bytes]:
        """Return some of them, without the last; nothing else is read."""
        ends = [int(self.ends[start - 1]) if start else 0, *self.ends[start:stop].tolist()]
        content = bytes(self.content[ends[0] : ends[-1]].numpy())
        return [content[a - ends[0] : b - ends[0]] for a, b in itertools.pairwise(ends)]

    @classmethod
    def of(cls, raw: Sequence[bytes]) -> "Strings":
        """Join byte strings."""
        content = torch.frombuffer(bytearray(b"".join(raw)) or bytearray(1), dtype=torch.uint8)
        return cls(content, torch.tensor([len(one) for one in raw], dtype=torch.int64).cumsum(0))

    def is_sound(self) -> bool:
        """Tell whether they end in order, and within the content."""
        begins = torch.cat([self.ends.new_zeros(1), self.ends])
        return bool((begins[1:] >= begins[:-1]).all()) and int(begins[-1]) <= len(self.content)


class Columns:
    """The ids and fields of n candidates."""

    def __init__(self, tensors: Mapping[str, Tensor], fields: Fields):
        self.tensors, self.fields = dict(tensors), fields
        self.ids = Strings(self.tensors["ids"], self.tensors["id_ends"])

    @classmethod
    def of(cls, records: Sequence[Record], fields: Fields) -> "Columns":
        """Convert records."""
        ids = Strings.of([utf8(record.id) for record in records])
        tensors = {"ids": ids.content, "id_ends": ids.ends}
        for place, (name, kind) in enumerate(fields.items()):
            values = [record.values[place] for record in records]
            if kind == "text":
                words = sorted({value for value in values if value is not None}, key=sort_key)
                codes = {word: code for code, word in enumerate(words)}
                stored = Strings.of([utf8(str(word)) for word in words])
                tensors |= {f"words.{name}": stored.content, f"word_ends.{name}": stored.ends}
                numbers: list[Value] = [-1 if value is None else codes[value] for value in values]
            else:
                none = {"int": NO_INT, "float": float("nan"), "bool": -1}[kind]
                numbers = [none if value is None else value for value in values]
            tensors[f"field.{name}"] = torch.tensor(numbers, dtype=DTYPES[kind])
        return cls(tensors, fields)

    @classmethod
    def among(cls, tensors: Mapping[str, Tensor]) -> "Columns | None":
        """Return the columns of a shard; None for plain lines. A ValueError says if they are not as `of` makes them."""
        own = {name: one for name, one in tensors.items() if name in ("ids", "id_ends") or "." in name}
        if not own:
            return None
        kinds = {dtype: kind for kind, dtype in DTYPES.items()}
        found = {name.removeprefix("field."): one for name, one in own.items() if name.startswith("field.")}
        fields = {name: kinds.get(one.dtype, "") for name, one in found.items()}
        texts = [name for name, kind in fields.items() if kind == "text"]
        types: dict[str, torch.dtype | None] = {f"field.{name}": DTYPES.get(kind) for name, kind in fields.items()}
        for content, ends in (("ids", "id_ends"), *((f"words.{name}", f"word_ends.{name}") for name in texts)):
            types |= {content: torch.uint8, ends: torch.int64}
        if {name: one.dtype for name, one in own.items()} != types or any(one.ndim != 1 for one in own.values()):
            raise ValueError("ids or fields of another type")
        made = cls(own, fields)
        lengths = {len(one) for one in found.values()} | {len(made)}
        if len(lengths) > 1 or not all(one.is_sound() for one in (made.ids, *map(made.words, texts))):
            raise ValueError("ids or fields of another number")
        for name in texts:
            low, high = torch.aminmax(found[name])
            if low < -1 or high >= len(made.words(name)):
                raise ValueError("a code without a word")
        return made

    def __len__(self) -> int:
        return len(self.ids)

    def words(self, name: str) -> Strings:
        """Return the different texts of a field."""
        return Strings(self.tensors[f"words.{name}"], self.tensors[f"word_ends.{name}"])

    def ids_of(self, places: Sequence[int] | np.ndarray) -> list[str]:
        """Return the ids at some places."""
        return [self.ids[int(place)].decode("utf-8", "replace") for place in places]

    def values_at(self, place: int) -> tuple[Value | None, ...]:
        """Return the values of a candidate's fields."""
        values: list[Value | None] = []
        for name, kind in self.fields.items():
            number = self.tensors[f"field.{name}"][place].item()
            if kind == "text":
                values.append(None if number < 0 else self.words(name)[int(number)].decode("utf-8", "replace"))
            elif kind == "bool":
                values.append(None if number < 0 else bool(number))
            else:
                values.append(None if number in (NO_INT,) or number != number else number)
        return tuple(values)

    def records(self, texts: Sequence[str], start: int = 0) -> list[Record]:
        """Return candidates with their texts, from a place on."""
        places = range(start, start + len(texts))
        return [Record(*one) for one in zip(self.ids_of(places), texts, map(self.values_at, places), strict=True)]

    def mask(self, conditions: Filter) -> np.ndarray:
        """Tell which candidates meet all conditions: [n] boolean."""
        found = np.ones(len(self), bool)
        for condition in conditions:
            column = self.tensors[f"field.{condition.field}"].numpy()
            if condition.one_of is not None:
                wanted = list(condition.one_of)
                if condition.kind == "text":
                    words = self.words(condition.field)
                    places = [(bisect.bisect_left(words, key), key) for key in map(sort_key, wanted)]
                    wanted = [place for place, key in places if place < len(words) and words[place] == key]
                is_met = column == wanted[0] if len(wanted) == 1 else np.isin(column, np.array(wanted, column.dtype))
                found &= is_met
                continue
            if condition.kind != "float":  # NaN meets no bound anyway
                found &= column != (NO_INT if condition.kind == "int" else -1)
            for operator, value in condition.bounds:
                if condition.kind == "text":  # > and <= count the words up to the value, >= and < those before it
                    side = bisect.bisect_right if operator in (">", "<=") else bisect.bisect_left
                    value = side(self.words(condition.field), sort_key(value))
                    operator = ">=" if operator in (">", ">=") else "<"
                found &= COMPARE[operator](column, value)
        return found
