"""People who talk with models: an agent that tells what it has read, and a plan with its application."""

from polyagents.human_eval.chat_models import ChatModels
from polyagents.human_eval.chat_store import Chats, Plan
from polyagents.human_eval.store import Store
from polyagents.human_eval.web.chat_app import create_app

MODELS = ("secret-poly", "secret-bi")
ORGANISER = "the-organiser"
PERSONA = ("your persona: i ski .\nyour persona: i like tea .", "your persona: i am the other .")


class Echo:
    """Replies with all that it has read and said since it was reset."""

    def __init__(self):
        self.heard = []

    def reset(self):
        self.heard = []

    def observe(self, message):
        self.heard.append(message["text"])

    def self_observe(self, message):
        self.heard.append(message["text"])

    def act(self):
        return {"text": f"{len(self.heard)}: {' | '.join(text[:20] for text in self.heard[-3:])}"}


def plan_of(**changes):
    """A short plan."""
    return Plan(**{"models": MODELS, "personas": [PERSONA], "turns": 2, "conversations": 2} | changes)


def shop_of(url, people=("ada", "bob"), **changes):
    """A store at a URL, with chats of a plan and people; and their tokens."""
    store = Store(url)
    return Chats(store, plan_of(**changes)), [person.token for person in store.invite(people)]


def app_of(chats, agent=Echo):
    """The application, whose models are agents of one kind."""
    return create_app(chats, ChatModels({model: agent() for model in chats.plan.models}), ORGANISER)


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
