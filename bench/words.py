"""13.4 million words of 18 languages: ingest, train and evaluate within a memory limit, under a hard cap.

    python bench/words.py --memory 1GB --to /tmp/words

The question is which language a word is from; the features are its letters, pairs and triples of letters at
the edges of the word as well, hashed to 2^18 columns: 445 million non-zeros. Every step is one command in a
process of its own, which the kernel ends when it takes more than its bare imports and 1.5 times the limit
(see ``bench/memory_cap.py``). One JSON line per step.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from data import words
from memory_cap import bare_bytes, run

from bigmc.budget import parse_bytes

LEARNER = ["--alpha", "2e-4", "--ridge", "1e-6", "--loss", "multitask_squared_hinge", "--tol", "1e-3"]


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--memory", default="1GB", help="limit of every step")
    parser.add_argument("--to", type=Path, default=Path("words"), help="folder to work in")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    limit = parse_bytes(given.memory)
    dataset, model = given.to / "words.bigmc", given.to / f"words-{given.memory}.model"
    hashing = ["--text", "word", "--label", "language", "--analyzer", "char_wb", "--ngrams", "1-3"]
    commands = {
        "ingest": ["ingest", str(words(given.to)), *hashing, "--to", str(dataset)],
        "train": ["train", "sparse", str(dataset), "--to", str(model), *LEARNER],
        "evaluate": ["evaluate", str(model), str(dataset)],
    }
    for step, command in commands.items():
        figures = run(step, command, limit, *bare_bytes(step))
        print(json.dumps(figures), flush=True)
        if figures["status"]:
            raise SystemExit(figures["status"])


if __name__ == "__main__":
    main()
