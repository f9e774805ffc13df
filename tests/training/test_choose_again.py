"""A search that misjudged is corrected on unseen rows, and no kill changes how."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.store.sample import draw_rows
from bigmc.training.fit import find_winner, fit, unseen_rows
from bigmc.training.fit.models import FitModels
from bigmc.training.search.search import Search

RNG = np.random.default_rng(8)


def texts(n):
    """Texts of three classes by words of which each is rare."""
    codes = RNG.integers(0, 3, n)
    rare = RNG.integers(0, 500, (n, 4)) * 3 + codes[:, None]
    words = np.hstack([rare, RNG.integers(5000, 6000, (n, 2))]).astype(str)
    return pd.DataFrame({"text": [" ".join(row) for row in words], "label": np.array(list("abc"))[codes]})


def table(n):
    """Numbers of two classes that a line parts."""
    x = RNG.normal(size=(n, 4))
    labels = np.where(x[:, 0] + x[:, 1] + 0.3 * RNG.normal(size=n) > 0, "yes", "no")
    return pd.DataFrame(x, columns=list("abcd")).assign(label=labels)


@pytest.fixture(params=[texts, table])
def misled(request, tmp_path, monkeypatch):
    """A table with the options to fit it, a folder, and searches that end with far too strong a ridge."""
    monkeypatch.setattr(unseen_rows, "FEWEST_JUDGES", 20)
    monkeypatch.setattr(find_winner, "may_boost", lambda request: False)
    frame = request.param(900)
    own = {"text": "text"} if "text" in frame else {"dense": list("abcd")}
    original = Search.run

    def run(search, rival=None):
        searched = original(search, rival)
        poor = search.trial_of(replace(searched.trials[0].candidate, ridge=3e4))
        # as if the search had seen a part of the rows
        return searched._replace(best=poor, n_rows=searched.n_rows - 1)

    monkeypatch.setattr(Search, "run", run)
    return frame, {**own, "label": "label", "memory_limit": "1GB"}, tmp_path


@pytest.mark.exhaustive(keep=1)
def test_the_better_model_is_taken_and_tested_on_other_rows(misled):
    frame, options, folder = misled
    data = bigmc.ingest(frame, folder / "d", split={"train": 0.6, "test": 0.4}, **options)
    result = bigmc.fit(data, folder / "m", memory_limit="1GB")
    plain = result["trials"][0]["settings"]
    assert result["settings"] == plain
    assert any("better than the winner of the search" in note for note in result["notes"])
    test = data["test"]
    share = min(unseen_rows.JUDGING_SHARE, 1.0)
    _, judges = draw_rows(test, share, unseen_rows._JUDGING_SEED, ThreadEngine())
    others = np.setdiff1d(np.arange(test.n_samples), judges)
    assert result["test"]["n_samples"] == len(others)
    assert result["baselines"]["plain_ridge"] == result["test"]["accuracy"]
    said = bigmc.load_model(folder / "m").predict(test)[others]  # the model of the training rows: no refit
    assert result["test"]["accuracy"] == pytest.approx(
        accuracy_score(test.classes[test.labels()[others]], said)
    )


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize("n_trained", [1, 3])
def test_killed_after_any_training_it_makes_the_same_model(misled, n_trained, monkeypatch):
    frame, options, folder = misled
    frame.to_csv(folder / "table.csv", index=False)
    options["dataset"] = folder / "d"
    whole = bigmc.fit(folder / "table.csv", folder / "whole", **options)
    left = [n_trained]

    def stopping(function):
        def stopped(*arguments, **named):
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            return function(*arguments, **named)

        return stopped

    with monkeypatch.context() as context:
        context.setattr(FitModels, "tested", stopping(FitModels.tested))
        context.setattr(FitModels, "beside", stopping(FitModels.beside))
        with pytest.raises(KeyboardInterrupt):
            bigmc.fit(folder / "table.csv", folder / "m", **options)
    again = bigmc.fit(folder / "table.csv", folder / "m", **options)
    assert again["test"] == whole["test"]
    assert (folder / "m").read_bytes() == (folder / "whole").read_bytes()


@pytest.mark.exhaustive(keep=1)
def test_where_the_search_saw_all_rows_nothing_is_chosen_again(misled, monkeypatch):
    frame, options, folder = misled
    data = bigmc.ingest(frame, folder / "d", split={"train": 0.6, "test": 0.4}, **options)
    monkeypatch.setattr(fit, "choose_again", None)
    original = Search.run

    def run(search, rival=None):
        return original(search, rival)._replace(n_rows=data["train"].n_samples)

    monkeypatch.setattr(Search, "run", run)
    result = bigmc.fit(data, folder / "m", memory_limit="1GB")
    assert result["test"]["n_samples"] == data["test"].n_samples
