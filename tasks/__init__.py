"""Tasks to train and evaluate on, named `-t polyagents.tasks.NAME` in ParlAI's commands.

Loading one of them in ParlAI patches ParlAI as our agents need it. The builders of data beside them need no ParlAI.
"""

import sys

if "parlai.core.params" in sys.modules:
    from polyagents.parlai_agents import patches  # which imports ParlAI

    patches.apply()
