"""One recipe for each number of the paper's tables: the flags of `train_model` that should reach it.

`paper.py` has the numbers, and with them the list of recipes; `recipe_flags.py` turns a name into flags;
`describe.py` shows them. `commands/recipe_report.py` compares trained models with the numbers.
"""
