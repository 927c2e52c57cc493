"""README and docs are pasted into empty folders, with the network off: what a reader types works as printed."""

import subprocess
import sys

import pages
import pytest

SCRIPT = pages.ROOT / "scripts" / "pages.py"
FIRST_HOUR = ["README.md", "docs/faq.md", *(page for page in pages.pages() if page.startswith("docs/tutorial/"))]
FIRST = ("README.md", "docs/faq.md", *(f"docs/tutorial/{name}.md" for name in ("first_ranker", "own_data", "decide")))


def commands(page):
    """How many commands of a page are run, and how many are marked."""
    found = [block for block in pages.blocks((pages.ROOT / page).read_text(encoding="utf-8")) if not block.stops]
    counted = [(len(block.commands()), block.needs) for block in found]
    return sum(count for count, needs in counted if not needs), sum(count for count, needs in counted if needs)


def pasted(*given):
    """What the script says of pages, and its exit code."""
    done = subprocess.run([sys.executable, SCRIPT, *map(str, given)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr, done.returncode


def has_some(page):
    """Whether anything of a page is run; bash is not asked, as it would be by every run of any test."""
    return any(not block.stops and not block.needs for block in pages.blocks((pages.ROOT / page).read_text("utf-8")))


@pytest.mark.slow
@pytest.mark.parametrize("page", FIRST)
def test_a_page_that_is_read_first_works_with_fewer_updates(page):
    said, code = pasted("--brief", page)
    assert code == 0, said


def test_each_update_less_is_of_a_page_that_is_read_first():
    printed = "".join((pages.ROOT / page).read_text("utf-8") for page in FIRST)
    assert [line for line in pages.BRIEF if line not in printed] == []


@pytest.mark.release
@pytest.mark.parametrize("page", list(filter(has_some, pages.pages())))
def test_a_page_works_as_printed(page):
    said, code = pasted(page)
    assert code == 0, said


def test_the_first_hour_needs_no_network_but_where_it_says_so():
    run, marked = (sum(counts) for counts in zip(*map(commands, FIRST_HOUR), strict=True))
    assert run > 50
    assert marked <= run / 5


def test_a_comment_that_is_no_reason_is_refused():
    page = "<!-- needs: luck -->\n```bash\nls\n```\n"
    with pytest.raises(ValueError, match="'luck' is no reason"):
        list(pages.blocks(page))
    assert [block.needs for block in pages.blocks(page.replace("luck", "people"))] == ["people"]


def test_commands_are_told_apart_as_bash_does():
    code = "# a comment\nA=1  # another\nls \\\n  -l\ncat > x <<'E'\nls\n\nE\nfor a in b; do\n  echo $a\ndone\n"
    assert pages.shell_commands(code) == [
        "A=1  # another\n",
        "ls \\\n  -l\n",
        "cat > x <<'E'\nls\n\nE\n",
        "for a in b; do\n  echo $a\ndone\n",
    ]


PAGE = """
```bash
mkdir below && cd below && NAME=world
```

```
not run
```

<!-- until Ctrl-C -->
```bash
python -m http.server 8123 --bind 127.0.0.1
```

```python
number = 1
```

```bash
echo "hello $NAME" > file.txt
curl -s http://127.0.0.1:8123/file.txt | grep 'hello world'
read typed && [ "$typed" = hello ]
```

<!-- needs: people -->
```bash
false
```

```python
assert number == 1
```

<!-- Ctrl-C -->

```bash
! curl -s http://127.0.0.1:8123/file.txt
```
"""


@pytest.mark.slow
def test_a_page_has_one_shell_one_python_and_a_server(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    said, code = pasted(page)
    assert code == 0, said
    assert f"| {page} | 9 | 8 | 1 people |  |" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "instead", "failed"),
    [
        ("echo ", "ehco ", "ehco"),
        ("number == 1", "number == 2", "assert number == 2"),
        ("--bind", "--bnid", "http.server"),
        ("<!-- Ctrl-C -->", "", "! curl"),
    ],
)
def test_a_command_that_fails_is_named(tmp_path, broken, instead, failed):
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace(broken, instead))
    said, code = pasted(page)
    assert code == 1
    assert f"FAILED {page}" in said and failed in said
