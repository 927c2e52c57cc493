"""Every patch of ParlAI that our agents and tasks rely on, applied together."""

import sys

from polyagents.parlai_patches import compat, every_utterance, short_help, train_loop, worlds


def apply() -> None:
    """Patch ParlAI in this process (idempotent).

    `parlai multiprocessing_train` requires CUDA and hangs when a process dies; `launching` replaces what it calls. That
    imports ParlAI's script, so it is done only if ParlAI's command has imported it.
    """
    compat.apply()
    train_loop.patch_for_all_agents()
    every_utterance.apply()
    worlds.apply()
    short_help.apply()
    if "parlai.scripts.multiprocessing_train" in sys.modules:
        from polyagents.parlai_patches import launching  # so that other commands need not import that script

        launching.apply()
