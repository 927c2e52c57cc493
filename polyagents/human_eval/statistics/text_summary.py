"""A report in a few lines, for the terminal."""

from collections.abc import Sequence

from polyagents.console import number_of
from polyagents.human_eval.records import HIGHEST, LOWEST, RatedChat
from polyagents.human_eval.statistics.display import number, p_value, percent, printable
from polyagents.human_eval.statistics.filtering import FAILED, FilteredJudgement, reasons
from polyagents.human_eval.statistics.ratings import ModelRating
from polyagents.human_eval.statistics.report_sections import Section
from polyagents.human_eval.statistics.win_rates import Matchup

MOST_LINES = 10  # of comparisons; more say less


def summary(sections: Sequence[Section], filtered: Sequence[FilteredJudgement]) -> str:
    """Summarise who wins, how certain that is, and how far annotators agree."""
    lines = [counted(filtered)]
    for section in sections:
        lines += ["", printable(section.question) or "(no question)"]
        for place, ranked in enumerate(section.ranking.models, 1):
            lines.append(
                f"  {place}. {printable(ranked.model)}: preferred over one of the others {percent(ranked.win_rate)}"
            )
        if len(section.matchups) <= MOST_LINES:
            lines += [f"  {line(matchup)}" for matchup in section.matchups]
        else:
            lines.append(f"  {len(section.matchups)} pairs of models were compared: see the page, or win_rates.csv.")
        lines += [f"  {printable(section.ranking.note)}", f"  {agreed(section)}"]
    return "\n".join(lines)


def counted(filtered: Sequence[FilteredJudgement]) -> str:
    """Say how much was judged, and by how many."""
    used = [one.judgement for one in filtered if not one.left_out]
    people, pairs = len({j.annotator for j in used}), len({j.pair for j in used})
    counts = f"{number_of(len(used), 'judgement')} of {number_of(pairs, 'pair')} by {number_of(people, 'annotator')}"
    return f"{counts}; left out: {reasons(filtered) or 'none'}."


def line(matchup: Matchup) -> str:
    """Write a line about one comparison."""
    first, second = map(printable, matchup.models)
    return (
        f"{first} over {second}: {matchup.wins[0]:,} of {matchup.judgements:,}, {percent(matchup.rate)}, "
        f"p: {p_value(matchup.p_value)}"
    )


def agreed(section: Section) -> str:
    """Say how far annotators agree."""
    if section.agreement is None:
        return "Agreement: unknown, because no pair was judged by two annotators."
    found = section.agreement
    alpha = "not defined (nobody ever differed)" if found.alpha is None else number(found.alpha)
    return f"Agreement on {number_of(found.pairs, 'pair')}: {percent(found.share)}; Krippendorff's alpha {alpha}"


def rating_summary(chats: Sequence[RatedChat], rated: Sequence[ModelRating]) -> str:
    """Summarise how models are rated, and how certain that is."""
    return "\n".join([counted_chats(chats), *(f"  {rating_line(one)}" for one in rated)])


def counted_chats(chats: Sequence[RatedChat]) -> str:
    """Say how many chats there are, and of how many people."""
    used = [chat for chat in chats if chat.passed]
    people, failed = len({chat.annotator for chat in used}), len(chats) - len(used)
    left_out = f"{failed:,} ({FAILED})" if failed else "none"
    of_people = number_of(people, "person", "people")
    return f"{number_of(len(used), 'chat')} of {of_people} with models; left out: {left_out}."


def rating_line(rated: ModelRating) -> str:
    """Write a line about the ratings of one model."""
    said = [f"mean rating {number(rated.mean)} of {LOWEST} to {HIGHEST}"] if rated.mean else []
    if rated.good:
        said.append(f"{percent(rated.good)} of {number_of(rated.rated, 'rated reply', 'rated replies')} good")
    return f"{printable(rated.model)}, {number_of(rated.chats, 'chat')}: {'; '.join(said) or 'not rated'}"
