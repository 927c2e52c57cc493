"""A study for a crowd: what it asks of each person, and how a platform sends its people and takes them back.

Plain values without a library, and the file that they are read from.
"""

import dataclasses
import os
import re
from dataclasses import dataclass

from polyagents.errors import InputError
from polyagents.files.json_files import check_whole, fields_of_json, read_json
from polyagents.files.lines import opened, without_mark

STAGES = ("consent", "screening", "instructions", "work")  # of a person who holds a place, in order
COMPLETE, SCREENED_OUT, DECLINED, REJECTED = "complete", "screened out", "declined", "rejected"
LARGEST = 100_000  # bytes of a text


@dataclass(frozen=True)
class Platform:
    """How a platform sends its people."""

    person: str  # the parameter of the address that names the person
    study: str
    session: str  # the submission
    form: str  # what such an identifier looks like, a regular expression
    query: str = ""  # of the address that it is given: {study} is the study's name, and the platform fills in the rest
    code: str = ""  # what a completion code looks like; "" if there is none
    back: str = ""  # the address that ends a submission, with {} for the code; "" if there is none
    renews: bool = False  # whether the same person may come with another submission, which nothing confirms


PLATFORMS = {
    "prolific": Platform(
        "PROLIFIC_PID", "STUDY_ID", "SESSION_ID", "[0-9a-f]{24}",
        query="?PROLIFIC_PID={{%PROLIFIC_PID%}}&STUDY_ID={{%STUDY_ID%}}&SESSION_ID={{%SESSION_ID%}}",
        code="[A-Za-z0-9_-]{1,64}", back="https://app.prolific.com/submissions/complete?cc={}",
    ),
    "mturk": Platform("workerId", "hitId", "assignmentId", "[A-Z0-9]{10,64}", renews=True),
    "link": Platform(
        "person", "study", "person", r"[^\x00-\x20\x7f][^\x00-\x1f\x7f]{0,199}",
        query="?study={study}", code=r"[^\x00-\x1f\x7f]{0,200}",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Screening:
    """A question with some options; who chooses one that is not accepted does not take part."""

    question: str
    options: list[str]
    accepted: list[str]


@dataclass(frozen=True)
class Study:
    """The settings of a study. Of all its texts, "" means that there is none."""

    places: int  # people who may complete it
    each: int  # judgements, or chats, of each person
    id: str = ""  # the platform's name of it, which every arrival must carry; "" before the platform has given it
    minutes: int = 60  # after which a place is offered again if its person has stored nothing
    code: str = ""  # what a person gets in the end
    screen_out_code: str = ""  # what a person gets who is screened out
    consent: str = ""  # Markdown that a person must agree to
    instructions: str = ""  # Markdown before the work
    screening: list[dict[str, str | list[str]]] = dataclasses.field(default_factory=list)
    onboarding: int | None = None  # checks that come first, and end the study if too few are right; None: all
    texts: str = ""  # the file of the pages' texts; "" for English
    title: str = ""  # what the platform shows; also the description
    description: str = ""
    reward: int = 0  # of each person, in cents
    duration: int = 10  # minutes that it takes, as the platform is told
    platform: str = "link"  # a key of PLATFORMS

    @property
    def questions(self) -> list[Screening]:
        """The screening questions."""
        return [fields_of_json(one, Screening) for one in self.screening]

    def stage(self, earliest: str) -> str:
        """Return the first stage, from one on, that the study has."""
        there = {"consent": self.consent, "screening": self.screening, "instructions": self.instructions, "work": True}
        return next(stage for stage in STAGES[STAGES.index(earliest) :] if there[stage])


def read_study(path: str, platform: str, needs_id: bool = True) -> Study:
    """Read a study from its file (JSON), and the texts whose files it names; an InputError says what cannot be."""
    rules, folder = PLATFORMS[platform], os.path.dirname(path)
    try:
        found = read_json(path)
        study = dataclasses.replace(fields_of_json(found, Study), platform=platform)
        if found.get("platform", platform) != platform:
            raise ValueError(f"its platform is {found['platform']!r:.60}, and the command's {platform}")
        check_whole(dataclasses.asdict(study))
        questions = study.questions
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"--study {path} cannot be used ({why}); docs/running-a-study.md has an example.") from error
    fine = {
        "places": 1 <= study.places <= 100_000,
        "each": 1 <= study.each <= 10_000,
        "minutes": 1 <= study.minutes <= 100_000,
        "onboarding": study.onboarding is None or study.onboarding >= 0,
        "duration": 1 <= study.duration <= 10_000,
        "reward": 0 <= study.reward <= 1_000_000,
        "screening": all(
            {*one.accepted} <= {*one.options} and one.accepted and all(map(is_option, one.options)) for one in questions
        ),
        "id": re.fullmatch(rules.form, study.id) or not (study.id or needs_id),
        "code": re.fullmatch(rules.code, study.code),
        # With the same code, who is screened out would be paid like the others.
        "screen_out_code": not (out := study.screen_out_code) or (out != study.code and re.fullmatch(rules.code, out)),
    }
    if wrong := next((name for name, ok in fine.items() if not ok), None):
        raise InputError(
            f"--study {path}: its {wrong} ({getattr(study, wrong)!r:.60}) cannot be used on {platform}; "
            f"docs/running-a-study.md says what it may be."
        )
    return dataclasses.replace(
        study,
        consent=read_text(folder, study.consent),
        instructions=read_text(folder, study.instructions),
        texts=study.texts and os.path.join(folder, study.texts),
    )


def is_option(text: str) -> bool:
    """Tell whether a person can see an option, and a form sends it back as it is."""
    return bool(text.strip()) and text.splitlines() == [text]


def read_text(folder: str, name: str) -> str:
    """Read a Markdown file; "" if no file is named."""
    if not name:
        return ""
    path = os.path.join(folder, name)
    try:
        with opened(path) as file:
            content = without_mark(file).read(LARGEST + 1)
        text = content.decode("utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({getattr(error, 'strerror', None) or 'it is not UTF-8'}).") from error
    if len(content) > LARGEST or not text.strip():
        raise InputError(f"{path} is empty, or longer than {LARGEST:,} bytes; give a text that people can read.")
    return text
