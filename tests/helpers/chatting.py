"""People who talk with models: a model that tells what it has read, and a plan with its application."""

from polyagents.human_eval.chat_replies import ChatModels
from polyagents.human_eval.storage.chat_store import ChatStore
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.views import ChatPlan
from polyagents.human_eval.web.chat_app import create_app

MODELS = ("secret-poly", "secret-bi")
ORGANISER = "the-organiser"
PERSONA = ("your persona: i ski .\nyour persona: i like tea .", "your persona: i am the other .")


class Echo:
    """Replies with all that it has read."""

    def reply(self, persona, messages, seed):
        heard = [*([persona] if persona else []), *messages]
        return f"{len(heard)}: {' | '.join(text[:20] for text in heard[-3:])}"


def plan_of(**changes):
    """A short plan."""
    return ChatPlan(**{"models": MODELS, "personas": [PERSONA], "turns": 2, "conversations": 2} | changes)


def shop_of(url, people=("ada", "bob"), **changes):
    """A store at a URL, with chats of a plan and people; and their tokens."""
    store = EvaluationStore(url)
    return ChatStore(store, plan_of(**changes)), [person.token for person in store.invite(people)]


def app_of(chats, partner=Echo):
    """The application, whose models are partners of one kind."""
    return create_app(chats, ChatModels({model: partner() for model in chats.plan.models}), ORGANISER)


def talk(chats, token, rating=4, says="hi", good=()):
    """One whole chat, past the pages; `good` are verdicts on the first replies. Returns it."""
    chat = chats.current(token)
    for turn in range(chats.plan.turns):
        chats.say(token, chat.number, 2 * turn, f"{says} {turn}")
        chats.reply(chat.number, 2 * turn + 1, f"reply {turn}")
    for turn, verdict in enumerate(good):
        chats.rate(token, chat.number, 2 * turn + 1, verdict)
    chats.finish(token, chat.number, rating)
    return chat
