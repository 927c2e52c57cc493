"""Two training loops with an encoder that computes nothing, as their benchmark times them."""

from backbones import SENTENCES, save
from parlai.core.params import ParlaiParser

from polyagents.benchmarks import loops
from polyagents.models.encoder import Encoder


def test_both_loops_make_their_updates_without_an_encoder(tmp_path, monkeypatch):
    backbone = loops.narrow(save("bert", tmp_path / "bert"), str(tmp_path / "narrow"))
    monkeypatch.setattr(loops.peers, "TEXT_TRUNCATE", 20)
    monkeypatch.setattr(loops.peers, "LABEL_TRUNCATE", 20)
    forward = Encoder.forward
    examples = [(f"{SENTENCES[row % 6]}\n{row}", SENTENCES[(row + 1) % 6]) for row in range(12)]
    opt = ParlaiParser(True, False).parse_args(["-t", "integration_tests", "-dp", str(tmp_path)])
    with loops.no_encoder():
        ours = loops.our_seconds(examples, backbone, 4, 3)
        theirs = loops.parlai_seconds(opt, backbone, 4, 3)
    assert len(ours) == 2 and len(theirs) == 3 and min(ours + theirs) > 0
    assert Encoder.forward is forward
