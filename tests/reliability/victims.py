"""A process that has loaded everything and forks a child for each command: the child may be killed, and costs no start.

Commands come as JSON lines on standard input. Each is answered by the number of its process, which waits for SIGUSR1
before it begins, and, when it has ended, by its status as `os.waitpid` gives it.
"""

import atexit
import contextlib
import json
import os
import random
import signal
import sys
import traceback

import faiss  # noqa: F401  what commands import is imported before they are forked
import numpy
import parlai.scripts.eval_model
import parlai.scripts.train_model  # noqa: F401
import torch
import transformers.models.bert.modeling_bert  # noqa: F401

import polyagents.index.approximate
import polyagents.parlai_agents.ranker_agent  # noqa: F401
from polyagents.__main__ import main
from polyagents.errors import InputError
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.index import builder, shard, store
from polyagents.tasks.pairs import build_pairs, portions
from polyagents.tasks.streaming import runs, source
from polyagents.tasks.wiki_search import parallel_reading

# So small that a little data has many of each.
shard.SHARD = builder.SHARD = store.SHARD = 8
source.CHUNK, parallel_reading.PART_BYTES, parallel_reading.BATCH_PAGES = 700, 9_000, 8
runs.RUN_BYTES, portions.PORTION_BYTES, build_pairs.SHARD = 6_000, 4_000, 50


def answer(database, token, confirmed):
    """Judge all that there is; each answer is confirmed once it is stored."""
    opened = EvaluationStore(database)
    with open(confirmed, "a") as told:
        while shown := opened.next_assignment(token):
            opened.answer(token, shown.number, "left", f"reason {shown.number}")
            os.write(told.fileno(), f"{shown.number}\n".encode())
    opened.close()


def run(arguments):
    """Do what a command line says, in a process of its own; its exit code."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    try:
        if arguments[0] == "answer":
            answer(*arguments[1:])
        else:
            sys.argv = ["polyagents", *arguments]
            main()
    except SystemExit as stop:
        return stop.code or 0
    except InputError as error:
        print(f"polyagents: {error}")
        return 2
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def begin(request):
    """The child: wait until it may begin, run, end."""
    signal.sigwait({signal.SIGUSR1})
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(request["cwd"])
    code = run(request["arguments"])
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
        sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    for line in sys.stdin:
        child = os.fork()
        if not child:
            begin(json.loads(line))
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)
