"""`polyagents convert_weights`: a trained model for other programs, Hugging Face's libraries or ParlAI's own agents."""

import contextlib
import os

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from polyagents.errors import InputError
from polyagents.files.hugging_face import write_folder
from polyagents.parlai_agents.agent import RankerAgent
from polyagents.parlai_files import model_options
from polyagents.parlai_files.model_weights import ParlaiModel
from polyagents.ranker import Ranker

FORMATS = ("huggingface", "parlai")
PARTS = (".opt", ".dict", ".dict.codecs")  # beside a model file of ParlAI's


@register_script("convert_weights")
class ConvertWeights(ParlaiScript):
    """Write a model as a Hugging Face folder, or as a model file of ParlAI's own agents."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """A model, and what to write."""
        parser = ParlaiParser(False, False, "Write a model in another program's format (polyagents)")
        parser.add_argument(
            "-mf", "--model-file", help="a model of polyagents or of ParlAI's bi-, poly- or cross-encoder; or zoo:..."
        )
        parser.add_argument(
            "--to",
            help="huggingface: the encoder that reads contexts, with its tokenizer, a folder for AutoModel and for "
            "--backbone; parlai: everything, a model file for `parlai ... -m transformer/polyencoder` and its like",
        )
        parser.add_argument("--out", help="the folder or model file to write; nothing that exists is overwritten")
        parser.add_parlai_data_path()
        return parser

    def run(self) -> None:
        """Convert."""
        file, target, out = (self.opt.get(name) for name in ("model_file", "to", "out"))
        if not file or not out or target not in FORMATS:
            raise InputError("convert_weights needs --model-file, --out, and --to huggingface or --to parlai.")
        for path in (out, *(f"{out}{part}" for part in PARTS if target == "parlai")):
            if os.path.lexists(path):
                raise InputError(f"{path} exists, and nothing is overwritten; give another --out.")
        agent = Ranker.load(file, no_cuda=True, datapath=self.opt["datapath"]).agent
        os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
        if target == "huggingface":
            write_folder(agent.context_encoder.backbone, agent.dict, out)
            scaling = agent.opt["output_scaling"]
            note = "" if scaling == 1 else f" --output-scaling {scaling}, which the folder does not hold"
            print(f"{out} is a Hugging Face folder: use it with --backbone {out}{note}")
        else:
            write_parlai(agent, out)
            print(f"{out} is a model file of ParlAI's: parlai eval_model -mf {out} -t TASK")


def write_parlai(agent: RankerAgent, file: str) -> None:
    """The model file, its options and dictionary; the model file last, so that where it is the others are, too."""
    options = model_options.for_parlai(agent.opt, agent.architecture, agent.context_encoder.backbone.config)
    try:
        ParlaiModel.of(agent.architecture, agent.module.state_dict(), options).write(file, agent.dict.content())
    except BaseException:
        for part in PARTS:
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{file}{part}")
        raise
