"""The score of counting shared words on a ParlAI task: the score that a trained model has to beat.

    python benchmarks/word_overlap.py -t convai2 -dp DATAPATH -dt valid

Score of a candidate: the sum of the inverse document frequencies of the words that it shares with the context, divided
by the square root of its length. Frequencies are counted over the candidates of the split. The label loses ties, as in
polyagents.
"""

import math
import re
from collections import Counter

from parlai.agents.repeat_label.repeat_label import RepeatLabelAgent
from parlai.core.params import ParlaiParser
from parlai.core.worlds import create_task

from polyagents.console import Bar

WORD = re.compile(r"\w+")


def words(text: str) -> set[str]:
    """Return the lower-case words of a text."""
    return set(WORD.findall(text.lower()))


def examples(opt: dict) -> list[tuple[str, str, list[str]]]:
    """Return (whole dialogue so far, label, candidates) of every example of a task."""
    world = create_task(opt, RepeatLabelAgent(opt))
    result, history = [], []
    for _ in Bar(range(world.num_examples()), desc="reading"):
        world.parley()
        message = world.get_acts()[0]
        label = message.get("labels", message.get("eval_labels"))[0]
        history.append(message["text"])
        result.append(("\n".join(history), label, list(message["label_candidates"])))
        history = [] if message["episode_done"] else [*history, label]
    return result


def main() -> None:
    """Print R@1 and MRR."""
    parser = ParlaiParser(True, False, "Rank by shared words")
    parser.set_defaults(datatype="valid", interactive_task=False)
    opt = parser.parse_args()
    data = examples(opt)
    documents = {candidate for _, _, candidates in data for candidate in candidates}
    counts = Counter(word for document in documents for word in words(document))
    idf = {word: math.log(len(documents) / count) for word, count in counts.items()}
    ranks = []
    for context, label, candidates in Bar(data, desc="ranking"):
        known = words(context)

        def score(candidate: str, known: set[str] = known) -> float:
            own = words(candidate)
            return sum(idf.get(word, 0.0) for word in own & known) / math.sqrt(len(own) or 1)

        best = score(label)
        ranks.append(1 + sum(score(candidate) >= best for candidate in candidates if candidate != label))
    r_at_1 = sum(rank == 1 for rank in ranks) / len(ranks)
    mrr = sum(1 / rank for rank in ranks) / len(ranks)
    print(f"{opt['task']} {opt['datatype']}: {len(ranks)} examples, R@1 {r_at_1:.3f}, MRR {mrr:.3f}")


if __name__ == "__main__":
    main()
