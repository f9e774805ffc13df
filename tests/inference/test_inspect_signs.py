"""The weight that `inspect` shows of a word has the sign with which the word moves the score."""

import numpy as np
import pandas as pd
import pytest

import bigmc
from bigmc.inference.inspection import inspect

WORDS = {"fish": "river sea boat scales", "bird": "sky wing nest feather", "tree": "leaf root bark forest"}


@pytest.mark.parametrize("weighting", ["counts", "binary", "l2", "tfidf"])
def test_weights_of_words_act_as_shown(weighting, tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.choice([*WORDS], 200)
    every = " ".join(WORDS.values()).split()
    texts = [" ".join([*rng.choice(WORDS[label].split(), 2), *rng.choice(every, 2)]) for label in labels]
    table = pd.DataFrame({"text": texts, "label": labels})
    bigmc.ingest(
        table, tmp_path / "d", text="text", label="label", weighting=weighting, ngrams=(1, 1), hash_bits=16
    )
    bigmc.api.train("sparse", tmp_path / "d", tmp_path / "m", alpha=1e-3, memory_limit="200MB")
    classifier = bigmc.load_model(tmp_path / "m")
    model = classifier.model_
    signs = set()
    for entry in inspect(model)["classes"]:
        code = model.classes.tolist().index(entry["label"])
        for feature in entry["features"]:
            [word] = feature["names"]
            score = classifier.decision_function([word["name"]])[0, code] - model.intercept[code]
            assert np.sign(feature["weight"] * word["sign"]) == np.sign(score), (entry["label"], word)
            signs.add(np.sign(feature["weight"]) != np.sign(score))
    assert signs == ({False} if weighting == "binary" else {False, True})  # hashes of both signs were there
