"""Simulated annotators of a known preference. They know the models by the texts that they read, and by nothing else."""

import random
import re
from html import unescape

from evaluation import fields

from polyagents.human_eval.conversations import sides_of


def texts_by_model(conversations):
    """Model -> the texts of each conversation in which it is judged."""
    found = {}
    for conversation in conversations:
        for model in sides_of(conversation):
            found.setdefault(model, set()).add(tuple(turn.text for turn in conversation.turns))
    return found


class SimulatedAnnotator:
    """Prefers a model with some probability, whatever side it is on.

    Args:
        seed: draws all choices; the same one draws the same, however the sides come.
        favourite: the texts of the preferred model's conversations.
        probability: that it is preferred.
    """

    def __init__(self, seed, favourite, probability):
        self.random, self.favourite, self.probability = random.Random(seed), favourite, probability

    def choose(self, texts):
        """The side to prefer, of the texts that stand on both: {"left": ..., "right": ...}."""
        (liked,) = [side for side, read in texts.items() if tuple(read) in self.favourite]
        (other,) = texts.keys() - {liked}
        return liked if self.random.random() < self.probability else other

    def judge_all(self, client, link):
        """Answer what the pages ask, as a browser without JavaScript does: how many there were."""
        count, page = 0, client.get(link, follow_redirects=True).text
        while "Thank you" not in page:
            form = fields(page) | {"choice": self.choose(texts_on(page)), "reason": f"because {count}"}
            page = client.post(link, data=form, follow_redirects=True).text
            count += 1
        return count


def texts_on(page):
    """What stands on the two sides of the annotation page."""
    sides = re.findall(r'<section class="half (\w+)".*?<ol>(.*?)</ol>', page, re.DOTALL)
    return {side: [unescape(text) for text in re.findall(r"<p>(.*?)</p>", half, re.DOTALL)] for side, half in sides}
