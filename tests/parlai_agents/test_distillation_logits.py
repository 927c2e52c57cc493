"""A student that scores cosines is taught by its logits, which are 20 times them: what its softmax sees."""

import math

import pytest
import torch
from agent_batches import act, example

from polyagents import Ranker

EXAMPLES = [("where", "canada"), ("who", "my dog"), ("how are you", "i am fine"), ("hi", "she plays the piano")]


def softmax(values):
    total = sum(math.exp(value) for value in values)
    return [math.exp(value) / total for value in values]


def kl(student, teacher):
    return sum(q * math.log(q / p) for p, q in zip(softmax(student), softmax(teacher), strict=True))


def margin_mse(student, teacher):
    margins = [(student[0] - s) - (teacher[0] - t) for s, t in zip(student[1:], teacher[1:], strict=True)]
    return sum(margin**2 for margin in margins) / len(margins)


@pytest.mark.parametrize(("name", "loss"), [("kl", kl), ("margin_mse", margin_mse)])
@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_distillation_takes_the_logits_of_a_student_that_scores_cosines(make, trained, kind, name, loss):
    flags = ("--teacher-model-file", trained("cross"), "--teacher-negatives", "2", "--distillation-loss", name)
    agent = make(kind, "--similarity", "cosine", "--candidates", "batch", "--dropout", "0", "-lr", "0", *flags)
    labels = [label for _, label in EXAMPLES]
    scale, teacher = 20.0, Ranker.load(trained("cross"))
    cosines = Ranker(agent.ranking).score([text for text, _ in EXAMPLES], labels)
    replies = act(agent, [example(*pair) for pair in EXAMPLES])
    for row, (reply, (text, label)) in enumerate(zip(replies, EXAMPLES, strict=True)):
        negatives = sorted((column for column in range(4) if column != row), key=lambda c: -cosines[row, c])[:2]
        student = [scale * float(cosines[row, column]) for column in (row, *negatives)]
        taught = teacher.score(text, [label, *(labels[column] for column in negatives)]).tolist()
        found = float(reply["metrics"]["distillation_loss"].value())
        assert found == pytest.approx(loss(student, taught), rel=1e-3, abs=1e-4)


def test_what_the_teacher_says_reaches_the_gradients(make, trained):
    gradients = []
    for flags in ((), ("--teacher-model-file", trained("cross"))):
        agent = make("bi", "--candidates", "batch", "--dropout", "0", "-lr", "0", "--gradient-clip", "-1", *flags)
        act(agent, [example(*pair) for pair in EXAMPLES])
        gradients.append(torch.cat([p.grad.flatten() for p in agent.model.parameters() if p.grad is not None]))
    assert (gradients[0] - gradients[1]).norm() > 0.01 * gradients[0].norm()
