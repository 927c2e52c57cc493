"""Which texts are one answer."""

import pytest

from polyagents.decisions.named_options import named_options
from polyagents.text.normalize import normalize


@pytest.mark.parametrize(
    ("text", "other"),
    [("A dog .", "the dog"), ("don't", "Don ' t !"), ("well-known", "well known"), ("(3-4)", "3 4"), ("B.", "b)")],
)
def test_case_punctuation_and_articles_do_not_matter(text, other):
    assert normalize(text) == normalize(other)


@pytest.mark.parametrize(
    "texts",
    [
        ["C", "C++", "C#"],
        ["+", "-", "*", "=", "?", "..."],
        [":)", ":("],
        ["1", "-1", "1.5", "15", "1%", "$1", "<1"],
        ["A", "An", "The", "B", ""],
        ["plan", "Plan A", "Plan B"],
    ],
)
def test_signs_and_choices_are_answers_of_their_own(texts):
    assert len({normalize(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("labels", "right"), [(["Yes!"], [0]), (["yes ."], [0, 1]), (["Yes?", "NO"], [1, 2]), (["maybe"], [])]
)
def test_an_option_that_is_the_label_is_the_only_right_one(labels, right):
    assert named_options(["Yes!", "Yes?", "no"]).right(labels) == right
