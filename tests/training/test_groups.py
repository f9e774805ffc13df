"""Rows of one group are on one side of every split: the ingest's, and whatever is held out of training."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.model_selection import GroupShuffleSplit

import bigmc
from bigmc.engine import ThreadEngine
from bigmc.errors import DataError
from bigmc.learners.boosting import held_out
from bigmc.store.sample import draw_groups, holdout_keys
from bigmc.training.options import HeldOut, calibration_rows
from bigmc.training.pilot import choose_for_texts
from bigmc.training.pilot_rows import PilotRows
from bigmc.training.search.limits import Limits
from bigmc.training.search.search import Search

pytestmark = pytest.mark.usefixtures("few_rounds_of_boosting")

ENGINE = ThreadEngine(1)
N_GROUPS, PER_GROUP = 300, 8
WORDS = np.array(["river", "sea", "boat", "scales", "net", "sky", "wing", "nest", "feather", "egg", "leaf"])


def table():
    """Texts whose label is drawn once for each group, and known only from the name of the group."""
    generator = np.random.default_rng(2)
    label = generator.choice(["a", "b"], N_GROUPS)
    groups = generator.permutation(np.repeat(np.arange(N_GROUPS), PER_GROUP))
    noise = generator.choice(WORDS, len(groups))
    texts = [f"name{g} {word}" for g, word in zip(groups, noise, strict=True)]
    return pd.DataFrame({"text": texts, "label": label[groups], "who": groups})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    options = {"text": "text", "label": "label", "group": "who", "keep": ["who"], "ngrams": (1, 1)}
    return bigmc.ingest(table(), folder / "d", split={"train": 0.7, "test": 0.3}, **options)


def groups_of(dataset):
    return np.concatenate([shard.table(["who"]).column("who").to_numpy() for shard in dataset.shards])


def test_as_many_groups_are_held_out_as_scikit_learn_holds_out(data):
    train = data["train"]
    groups = groups_of(train)
    peer = GroupShuffleSplit(n_splits=1, test_size=0.2, random_state=0)
    _, theirs = next(peer.split(groups, groups=groups))
    n_theirs, n_groups = len(set(groups[theirs])), len(set(groups))
    spread = np.sqrt(n_groups * 0.2 * 0.8)
    for seed in range(5):
        _, places = draw_groups(train, 0.2, seed, ENGINE)
        left = np.delete(groups, places)
        assert not set(groups[places]) & set(left)
        assert abs(len(set(groups[places])) - n_theirs) < 4 * spread
    assert not set(groups) & set(groups_of(data["test"]))


def test_a_sample_keeps_the_groups(data):
    train = data["train"]
    half, places = draw_groups(train, 0.5, 1, ENGINE)
    _, again = draw_groups(half, 0.4, 2, ENGINE)
    groups = groups_of(train)[places]
    assert 0 < len(again) < half.n_samples
    assert not set(groups[again]) & set(np.delete(groups, again))


@pytest.mark.parametrize("rows", [HeldOut(0.2, 3), calibration_rows(0.1, 2000)])
def test_what_validates_and_calibrates_is_whole_groups(data, rows):
    groups = groups_of(data["train"])
    _, places = rows.rows(data["train"], ENGINE)
    assert len(places)
    assert not set(groups[places]) & set(np.delete(groups, places))


def test_what_boosting_holds_out_is_whole_groups(data):
    groups = groups_of(data["train"])
    held = held_out(holdout_keys(data["train"]), 0.2, 0)
    assert 0 < held.sum() < len(held)
    assert not set(groups[held]) & set(groups[~held])


def test_nothing_is_learned_of_groups_that_were_not_seen(data):
    """The label of a group is a coin: right answers on other rows of a group would be near certain."""
    quality = Search(data["train"], ENGINE, Limits(1 << 30)).run().best.quality
    assert abs(quality - 0.5) < 0.2


def test_a_pilot_holds_out_whole_groups():
    rows = table()
    texts = pa.table({"text": rows["text"].to_numpy()})
    labels, groups = rows["label"].to_numpy(), rows["who"].to_numpy()
    apart = choose_for_texts(PilotRows(texts, labels, groups), len(rows), 1 << 30)
    mixed = choose_for_texts(PilotRows(texts, labels), len(rows), 1 << 30)
    best = [max(curve[-1].quality for curve in pilot.curves.values()) for pilot in (apart, mixed)]
    assert best[0] < 0.7 < 0.95 < best[1]


def test_a_fit_measures_groups_it_has_not_seen(tmp_path):
    rows = table()
    rows.to_csv(tmp_path / "t.csv", index=False)
    common = {"text": "text", "label": "label", "memory_limit": "1GB", "ngrams": (1, 1), "time_limit": 0.0}
    apart = bigmc.fit(tmp_path / "t.csv", tmp_path / "m", group="who", **common)
    mixed = bigmc.fit(tmp_path / "t.csv", tmp_path / "n", **common)
    assert apart["test"]["accuracy"] < 0.7 < 0.95 < mixed["test"]["accuracy"]
    assert max(trial["quality"] for trial in apart["trials"]) < 0.7


def test_few_groups_leave_one_on_either_side(tmp_path):
    rows = table()[:400].assign(who=np.arange(400) % 2)
    data = bigmc.ingest(rows, tmp_path / "d", text="text", label="label", group="who", split="train=1")
    for seed in range(6):
        assert 0 < len(draw_groups(data, 0.05, seed, ENGINE)[1]) < data.n_samples
        assert 0 < len(draw_groups(data, 0.95, seed, ENGINE)[1]) < data.n_samples
    one = bigmc.ingest(
        rows.assign(who=1), tmp_path / "e", text="text", label="label", group="who", split="train=1"
    )
    with pytest.raises(DataError, match="one group"):
        draw_groups(one, 0.5, 0, ENGINE)


def test_a_dataset_without_groups_holds_out_rows(tmp_path):
    data = bigmc.ingest(table(), tmp_path / "d", text="text", label="label", split="train=1")
    np.testing.assert_array_equal(holdout_keys(data), data.row_ids())


def test_the_column_of_the_hashes_is_not_to_be_taken(tmp_path):
    rows = table().assign(group_hash=1)
    with pytest.raises(DataError):
        bigmc.ingest(rows, tmp_path / "d", text="text", label="label", keep=["group_hash"])


@pytest.mark.parametrize(
    ("groups", "said"),
    [(1, "all samples belong to one group; leave --group out"), (2, None), (3, None)],
)
def test_a_fit_of_texts_in_few_groups(groups, said, tmp_path):
    """Of texts in two groups, often none was held out to choose n-grams: "a sample of rows is empty"."""
    rows = table()[:600].assign(who=np.arange(600) // 2 % groups)
    options = {"text": "text", "label": "label", "group": "who", "split": "train=1", "time_limit": 0.0}
    if said is None:
        assert bigmc.fit(rows, tmp_path / "m", **options)["trials"]
    else:
        with pytest.raises(DataError, match=said):
            bigmc.fit(rows, tmp_path / "m", **options)


def test_groups_of_one_class_each_are_named_and_not_few_rows(tmp_path):
    rows = pd.DataFrame({"x": np.arange(300.0), "label": np.repeat(["a", "b"], 150)})
    with pytest.raises(DataError, match="300 rows in 2 groups: without the groups held out, all are of one"):
        bigmc.fit(rows.assign(who=rows.label), tmp_path / "m", label="label", group="who", split="train=1")


def test_one_group_in_the_test_split_is_named(tmp_path):
    """Some of these groups go to train as a whole, others to test."""
    said = []
    for who in range(6):
        rows = pd.DataFrame({"x": np.arange(30.0), "label": ["a", "b"] * 15, "who": f"g{who}"})
        with pytest.raises(DataError) as refused:
            bigmc.fit(rows, tmp_path / f"m{who}", label="label", group="who", split="train=0.5,test=0.5")
        said.append(str(refused.value))
    assert {text.split(";")[0] for text in said} == {
        "all samples belong to one group",
        "'who' has so few groups that no row is in the split 'train', because groups stay whole",
    }
