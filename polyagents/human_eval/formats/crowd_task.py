"""Writes a folder with which ParlAI's crowdsourcing, whose code is in ParlAI's git tree, runs an evaluation."""

import os
from collections.abc import Mapping, Sequence

from polyagents.console import number_of
from polyagents.files.atomic import write_text
from polyagents.files.own_folder import own_folder
from polyagents.human_eval.conversations import model_of
from polyagents.human_eval.formats.acute_eval_format import write_pairings
from polyagents.human_eval.records import DEFAULT_QUESTION, PASS_SHARE, Conversation, ConversationPair

PAIRINGS, CONFIG, README = "pairings.jsonl", "polyagents.yaml", "README.md"

# ParlAI's hydra_configs/conf/example.yaml with our numbers; ${...} is filled in by Hydra.
CONFIG_TEXT = """#@package _global_
defaults:
  - /mephisto/blueprint: acute_eval
  - /mephisto/architect: local
  - /mephisto/provider: mock
mephisto:
  blueprint:
    additional_task_description: ""
    annotations_per_pair: 1
    block_on_onboarding_fail: {block}
    block_qualification: acute_eval_${{current_time}}_block
    eval_question: "{question}"
    num_matchup_pairs: {pairs}
    onboarding_threshold: {threshold}
    pairings_filepath: ???  # given on the command line
    random_seed: 42
    s1_choice: "I would prefer to talk to <Speaker 1>"
    s2_choice: "I would prefer to talk to <Speaker 2>"
    subtasks_per_unit: 5
    randomize_conversations: true
  task:
    allowed_concurrent: 1
    assignment_duration_in_seconds: 600
    max_num_concurrent_units: 0
    maximum_units_per_worker: 1
    task_description: "Evaluate quality of conversations through comparison."
    task_name: acute_eval_${{current_time}}
    task_reward: 0.5
    task_tags: "chat,evaluation,comparison,conversation"
    task_title: "Which Conversational Partner is Better?"
mturk:
  worker_blocklist_paths: null
"""

README_TEXT = """# An ACUTE-Eval run on a crowd platform

Written by `polyagents human_eval export --to crowd_task`: {pairs} and {checks} of {models}.

ParlAI's crowdsourcing cannot run from its released package, which lacks the workers' page. Take its git tree:

    git clone https://github.com/facebookresearch/ParlAI
    cp polyagents.yaml ParlAI/parlai/crowdsourcing/tasks/acute_eval/hydra_configs/conf/
    cd ParlAI          # then install ParlAI and Mephisto as parlai/crowdsourcing/README.md says
    python parlai/crowdsourcing/tasks/acute_eval/run.py conf=polyagents \\
        mephisto.blueprint.pairings_filepath=/path/to/this/folder/pairings.jsonl

With the settings as they are, the page is served on this machine to mock workers. A live run needs a provider, an
architect and a reward of your own: read ParlAI's page on it first.

## Tested and not tested

- Tried: `pairings.jsonl` passes what ParlAI's acute_eval_runner.py asks of each line as it loads it (the judged
  speakers in order, nobody else under their names), and polyagents imports it again as the same pairs.
  `polyagents.yaml` has the keys of ParlAI's example.yaml.
- Not tried: anything on a crowd platform, and Mephisto itself, which is archived. No worker has seen a pair this way.
- ParlAI shows no context above a conversation; personas are in `pairings.jsonl`, and workers will not see them.
"""


def write_crowd_task(folder: str, pairs: Sequence[ConversationPair], conversations: Mapping[str, Conversation]) -> None:
    """Write the folder: pairings, settings, and what to do with them."""
    own_folder(folder, "human_eval export", "--out", lambda folder: {PAIRINGS, CONFIG} <= {*os.listdir(folder)})
    checks = sum(pair.right is not None for pair in pairs)
    real = [pair for pair in pairs if pair.right is None]
    models = sorted({model_of(side, conversations) for pair in real for side in pair.sides})
    write_pairings(os.path.join(folder, PAIRINGS), pairs, conversations)
    counts = {"pairs": len(real), "checks": checks}
    settings = counts | {"block": str(checks > 0).lower(), "question": DEFAULT_QUESTION, "threshold": PASS_SHARE}
    write_text(os.path.join(folder, CONFIG), CONFIG_TEXT.format(**settings))
    said = {"pairs": number_of(len(real), "pair"), "checks": number_of(checks, "onboarding check")}
    write_text(os.path.join(folder, README), README_TEXT.format(models=", ".join(models), **said))
