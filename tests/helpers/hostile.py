"""Files that a stranger may have put in the place of a model's."""

import os
import socket

IRREGULAR = ["fifo", "socket", "device", "dangling", "loop"]


def irregular(path, what):
    """Put something that is not a file in the place of one."""
    path.unlink(missing_ok=True)
    if what == "fifo":
        os.mkfifo(path)
    elif what == "socket":
        here = os.open(path.parent, os.O_RDONLY)  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)
    else:
        path.symlink_to({"device": "/dev/zero", "dangling": "nowhere", "loop": path.name}[what])


def broken_tokenizers(good):
    """Contents of tokenizer.json with which the tokenizers library fails, or panics."""
    for charsmap in ("", "AAAA", "////////", "AAIAAA==" + "A" * 700, "AgAAAA==", 5, None):
        yield good | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap}}
    yield good | {"pre_tokenizer": {"type": "FixedLength", "length": 0}}
    for pattern in ("(a|a)+$", "(a*)*b", "(", "[", "\\"):
        yield good | {"normalizer": {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}}
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": False}
        yield good | {"pre_tokenizer": split}
    yield good | {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}}
    for kind in ("WordLevel", "WordPiece", "BPE", "Unigram", "None"):
        yield good | {"model": {"type": kind, "vocab": {}, "unk_token": "[UNK]", "merges": [["a", "b"]]}}
    yield from (good | {part: value} for part in good for value in (5, "x", [], [5], {}, {"type": "Evil"}, True))
    yield from (None, [], 5, "x", {})
