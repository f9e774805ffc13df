"""Train on text within 64 MB of memory, and see the proof of how good the answer is.

Run it with ``python examples/larger_than_memory.py``.

The text is made up: 20,000 reviews of four products, each with words of its own.
"""

import csv
import random
import tempfile
from pathlib import Path

import bigmc

PRODUCTS = {
    "kettle": ["boils", "water", "spout", "lid", "handle", "limescale", "whistle", "steam"],
    "lamp": ["bright", "bulb", "shade", "switch", "warm", "light", "dimmer", "glows"],
    "shoe": ["sole", "laces", "fits", "heel", "walks", "leather", "comfortable", "size"],
    "novel": ["plot", "reads", "author", "chapter", "characters", "ending", "pages", "dull"],
}
COMMON = [f"word{i}" for i in range(2000)]


def write_reviews(path: Path, n_rows: int) -> None:
    """Write reviews with a few telling words among many common ones."""
    rng = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "product"])
        for _ in range(n_rows):
            product = rng.choice([*PRODUCTS])
            words = rng.choices(COMMON, k=30) + rng.choices(PRODUCTS[product], k=2)
            rng.shuffle(words)
            writer.writerow([" ".join(words), product])


def main() -> None:
    """Ingest, train, evaluate and predict."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "reviews.csv"), Path(folder, "reviews.bigmc")
        write_reviews(source, 20_000)
        dataset = bigmc.ingest(source, target, text="review", label="product", memory_limit="64MB")
        model = bigmc.SparseClassifier(alpha=1e-3, memory_limit="64MB").fit(dataset["train"])
        bounds = model.certificate_
        print(f"the optimum of the objective is between {bounds.lower:.5f} and {bounds.upper:.5f}")
        print(f"accuracy on reviews it has not seen: {model.score(dataset['test']):.3f}")
        model.save(Path(folder, "reviews.model"))
        labels = bigmc.load_model(Path(folder, "reviews.model")).predict(["the lid and the spout leak"])
        print(f"'the lid and the spout leak' is about a {labels[0]}")


if __name__ == "__main__":
    main()
