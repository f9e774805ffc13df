"""The page is read back by a parser, and every figure on it compared with what it is a figure of."""

import json
import math
import re
import sys
from html.parser import HTMLParser

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, precision_recall_fscore_support

import bigmc
from bigmc import cli
from bigmc.errors import BigmcError, DataError
from bigmc.inference.inspection import inspect
from bigmc.model import LinearModel, MinimaxModel, load_model
from bigmc.reporting.plots import Axis, Curve, plot
from bigmc.reporting.style import STYLE

EMPTY = {"meta", "circle", "line", "polygon", "polyline"}
NASTY = [
    "<script>alert(1)</script>",
    "a \"quoted\" & 'single' one",
    "]]>--></style>",
    "plain",
    "日本 \u202e x",
]
WORDS = ["<img src=x onerror=alert(1)>", "&amp;", "tab\there", "nul\x00l", "ä b", "\"'", "javascript:1"]
HISTORY = [
    {"n_passes": 1.0, "objective": 4.0, "lower": 0.5, "gap": 0.875, "violation": 2.0, "seed": 3.0},
    {"n_passes": 2.5, "objective": 2.0, "lower": 1.0, "gap": 0.5, "violation": None, "seed": 3.0},
    {"n_passes": 4.0, "objective": 1.25, "lower": 1.2, "gap": 0.04, "violation": 0.25, "seed": 3.0},
]


class Page(HTMLParser):
    """Elements with their attributes and texts, in order; refuses what is not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.declared = None
        self.feed(text)
        self.close()
        assert not self.open
        assert self.declared == "DOCTYPE html"

    def handle_decl(self, decl):
        self.declared = decl

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs)
        node = {"tag": tag, "attrs": dict(attrs), "text": "", "within": list(self.open)}
        self.elements.append(node)
        if tag not in EMPTY:
            self.open.append(node)

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for node in self.open:
            node["text"] += data

    def handle_comment(self, data):
        raise AssertionError(data)

    def all(self, tag, within=None, **attrs):
        return [
            node
            for node in self.elements
            if node["tag"] == tag
            and (within is None or any(within is outer for outer in node["within"]))
            and all(node["attrs"].get(name.rstrip("_")) == value for name, value in attrs.items())
        ]

    def section(self, title):
        return next(h["within"][-1] for h in self.all("h2") if h["text"] == title)

    def facts(self):
        """Return what stands beside each heading of the tables: a number with all its digits, or a text."""
        found = {}
        for row in self.all("tr"):
            heads, cells = self.all("th", row), self.all("td", row)
            if len(heads) == len(cells) == 1:
                numbers = self.all("data", cells[0])
                found[heads[0]["text"]] = value(numbers[0]) if numbers else cells[0]["text"]
        return found


def value(node):
    return float(node["attrs"]["value"])


def linear(cls=LinearModel, labels=NASTY, **fields):
    rng = np.random.default_rng(0)
    features = np.arange(3, 3 + 2 * len(WORDS), 2)
    names = pa.table(
        {
            "bucket": [int(j) for j in features for _ in range(2)],
            "name": [name for k, word in enumerate(WORDS) for name in (word, f"other {k} <b>")],
            "sign": [s for k in range(len(WORDS)) for s in ((-1) ** k, 1)],
            "count": [c for k in range(len(WORDS)) for c in (1000 + k, k)],
        }
    )
    record = {
        "params": {"learner": "sparse", "split": "<tr>", "tol": 0.1, "alpha": 1 / 3, "o": {"none": None}},
        "feature_spec": {"text": ["</td>"], "columns_of": [f"c{i}" for i in range(40)]},
        "certificate": {"lower": 1.2, "upper": 1.25, "gap": 0.04}, "objective": 1.25,
        "n_iter": 7, "n_passes": 4.0, "history": HISTORY, "names": names,
    }  # fmt: skip
    coef = rng.standard_normal((len(features), len(labels)))
    intercept = rng.standard_normal(len(labels))
    return cls("sparse", np.array(labels), 30, features, coef, intercept, **(record | fields))


def page_of(model, tmp_path, **options):
    bigmc.report(model, tmp_path / "page.html", overwrite=True, **options)
    return Page((tmp_path / "page.html").read_text(encoding="utf-8"))


def sentences(page):
    return " ".join(node["text"] for node in page.all("p", page.section("Certificate")))


def test_every_figure_is_that_of_the_model(tmp_path):
    model = linear()
    facts = page_of(model, tmp_path).facts()
    assert facts["lower bound"] == 1.2
    assert facts["upper bound"] == facts["objective of the model"] == 1.25
    assert facts["gap, relative to the upper bound"] == 0.04
    assert facts["iterations"] == 7
    assert facts["passes over the data"] == 4
    assert facts["features of the data"] == 30
    assert facts["features used"] == len(WORDS)
    assert facts["weights that are not zero"] == model.coef.size
    assert facts["names kept"] == 2 * len(WORDS)
    assert facts["in memory when it scores"] == model.nbytes
    assert facts["alpha"] == 1 / 3
    assert facts["o.none"] == "–"
    assert facts["split"] == "<tr>"
    assert facts["text"] == "</td>"
    assert facts["columns_of"].endswith(", c11 … and 28 more")
    assert facts["weighting"] == "counts"
    assert "its file" not in facts
    model.save(tmp_path / "m")
    assert page_of(tmp_path / "m", tmp_path).facts()["its file"] == (tmp_path / "m").stat().st_size


def test_the_features_are_those_that_inspect_lists(tmp_path):
    model = linear()
    page = page_of(model, tmp_path, top=5)
    articles = page.all("article")
    expected = inspect(model, top=5)["classes"]
    assert [page.all("h3", article)[0]["text"] for article in articles] == NASTY
    shown = {"tab\there": "tab\\there", "nul\x00l": "nul\\x00l"}
    for article, entry in zip(articles, expected, strict=True):
        assert value(page.all("data", article)[0]) == entry["intercept"]
        rows = page.all("tr", article)
        assert len(rows) == len(entry["features"]) == 5
        for row, feature in zip(rows, entry["features"], strict=True):
            weight, count, other_count = (*page.all("data", row), None)
            first, second = feature["names"]
            assert value(weight) == feature["weight"] * first["sign"]
            assert value(count) == first["count"]
            assert other_count is None
            names = [node["text"] for node in page.all("bdi", row)]
            assert names == [shown.get(first["name"], first["name"]), second["name"]]
            side = "bar for" if value(weight) > 0 else "bar against"
            assert len(page.all("div", row, class_=side)) == 1


def test_nothing_on_the_page_runs_or_is_loaded(tmp_path):
    page = page_of(linear(), tmp_path)
    tags = {node["tag"] for node in page.elements}
    assert not tags & {"script", "img", "link", "iframe", "object", "a", "b <", "form", "image", "use"}
    assert len(page.all("style")) == 1
    assert "url(" not in page.all("style")[0]["text"]
    assert "@import" not in page.all("style")[0]["text"]
    for node in page.elements:
        assert not {name for name in node["attrs"] if name.startswith("on") or name in ("src", "href")}
    policy = page.all("meta", http_equiv=None)
    assert any("default-src 'none'" in node["attrs"].get("content", "") for node in policy)


def test_the_curves_go_through_the_history(tmp_path):
    page = page_of(linear(), tmp_path)
    pictures = {node["attrs"]["aria-label"]: node for node in page.all("svg")}
    assert list(pictures) == ["objective and lower bound", "gap", "largest violation"]
    drawn = {
        label: [coordinates(line) for line in page.all("polyline", picture)]
        for label, picture in pictures.items()
    }
    xs = [entry["n_passes"] for entry in HISTORY]
    upper, lower = drawn["objective and lower bound"]
    assert_affine(upper[:, 0], xs)
    heights = np.concatenate([upper[:, 1], lower[:, 1]])
    assert_affine(heights, [entry[name] for name in ("objective", "lower") for entry in HISTORY])
    assert heights[0] < heights[1]  # up is less
    assert_affine(drawn["gap"][0][:, 1], [entry["gap"] for entry in HISTORY])
    assert len(drawn["largest violation"][0]) == 2  # one is not known


def coordinates(line):
    return np.array([[float(v) for v in pair.split(",")] for pair in line["attrs"]["points"].split()])


def assert_affine(places, values):
    slope, start = np.polyfit(values, places, 1)
    np.testing.assert_allclose(places, start + slope * np.array(values), atol=0.11)


@pytest.mark.parametrize(
    "values",
    [[0.0, 1e-9, 1.0], [1, 2], [5.0], [-3e300, 2.0], [1.0, 1.0 + 2e-16], [0.0, 5e-324], [1e-310, 1.0], [0.0]],
)
def test_an_axis_holds_all_values(values):
    for axis in (Axis.of(values), Axis.across(values)):
        places = [axis.place(value) for value in values]
        assert all(-1e-9 <= place <= 1 + 1e-9 for place in places), (axis, places)
        assert sorted(values) == [v for _, v in sorted(zip(places, values, strict=True))]
        assert all(-1e-9 <= axis.place(tick) <= 1 + 1e-9 for tick in axis.ticks)
    assert 2 <= len(Axis.of(values).ticks) <= 8
    plot([Curve("c", [(float(k), v) for k, v in enumerate(values)], "red")], "x", "t", 300, 200)


def test_powers_of_ten():
    axis = Axis.of([2e-4, 0.5])
    assert axis.log
    assert axis.ticks == [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    assert axis.place(1e-2) == pytest.approx(0.5)
    assert not Axis.of([-1.0, 1000.0]).log


@pytest.mark.parametrize(
    "certificate",
    [
        {},
        {"lower": -math.inf, "upper": 1.25, "gap": math.inf},
        {"lower": math.nan, "upper": 1.25, "gap": math.nan},
    ],
)
def test_no_certificate_is_not_taken_for_one(tmp_path, certificate):
    page = page_of(linear(certificate=certificate), tmp_path)
    said = sentences(page)
    assert "Nothing is certified: no lower bound of the training objective is known" in said
    assert "lies between" not in said
    assert "reached" not in said
    assert ("the optimum is not above 1.25" in said) == bool(certificate)
    assert page.facts()["optimum"] == "unknown"
    tiles = dict(
        zip((n["text"] for n in page.all("dt")), (n["text"] for n in page.all("dd")), strict=True)
    )  # fmt: skip
    assert tiles["gap of the certificate"] == "none"


def test_the_certificate_in_words(tmp_path):
    said = sentences(page_of(linear(), tmp_path))
    assert "The optimum of the training objective lies between 1.2 and 1.25." in said
    assert "by 4 % at most" in said
    assert "The gap asked for, 0.1, was reached." in said
    strict = linear(params={"tol": 0.01})
    assert "0.01, was not reached" in sentences(page_of(strict, tmp_path))
    met = linear(certificate={"lower": 1.25, "upper": 1.25, "gap": 0.0})
    assert "The bounds meet" in sentences(page_of(met, tmp_path))


def test_the_bound_of_the_error(tmp_path):
    bounds = {"lower": 0.1, "upper": 0.35, "gap": 0.25}
    page = page_of(linear(MinimaxModel, phi=0.1, certificate=bounds, objective=0.35), tmp_path)
    said = sentences(page)
    assert "worst-case error probability lies between 0.1 and 0.35" in said
    assert "errs with a probability of at most 0.35;" in said
    assert "Both hold for every distribution" in said
    assert "Whether new samples come from such a distribution is not certified" in said
    assert page.facts()["gap, a difference"] == 0.25
    assert "%" not in said
    vacuous = linear(MinimaxModel, phi=0.1, certificate=bounds | {"upper": 1.0})
    assert "no bound of the error that says anything" in sentences(page_of(vacuous, tmp_path))


def test_many_classes_are_cut_and_the_page_says_so(tmp_path):
    model = linear(labels=[f"class {c:03d}" for c in range(60)])
    page = page_of(model, tmp_path, top=2)
    assert len(page.all("article")) == 50
    texts = [node["text"] for node in page.all("p")]
    assert any("the first 50 of 60 classes" in text for text in texts)
    assert len(page_of(linear(), tmp_path).all("article")) == len(NASTY)


@pytest.mark.parametrize(
    "history", [(), HISTORY[:1], [{"objective": None}], [{"made up": 1}, {"made up": 2}]]
)
def test_any_history_will_do(tmp_path, history):
    page = page_of(linear(history=history, names=None), tmp_path)
    labels = [node["attrs"]["aria-label"] for node in page.all("svg")]
    assert labels == (["made up"] if len(history) == 2 else [])
    assert page.all("td", page.all("article")[0])[1]["text"].startswith("feature ")


def test_paths_that_would_destroy_something_are_refused(tmp_path):
    model, path = linear(), tmp_path / "m.model"
    model.save(path)
    before = path.read_bytes()
    for target, message in (
        (path, "is an input of this command"),
        (tmp_path, "is a folder; give the path"),
        (tmp_path / "no" / "r.html", "there is no folder"),
    ):
        with pytest.raises(DataError, match=message) as refused:
            bigmc.report(path, target)
        assert "\n" not in str(refused.value)
    assert path.read_bytes() == before
    with pytest.raises(DataError, match="give the dataset with --dataset too"):
        bigmc.report(path, tmp_path / "r.html", split="test")
    with pytest.raises(BigmcError, match="does not exist"):
        bigmc.report(tmp_path / "none", tmp_path / "r.html")
    assert [file.name for file in tmp_path.iterdir()] == ["m.model"]
    (tmp_path / "r.html").write_text("<!doctype HTML><p>an old page</p>")
    with pytest.raises(DataError, match="not the result of the same command"):
        bigmc.report(path, tmp_path / "r.html")
    assert "an old page" in (tmp_path / "r.html").read_text()
    bigmc.report(path, tmp_path / "r.html", overwrite=True)
    assert "an old page" not in (tmp_path / "r.html").read_text()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.model", "r.html"]


def test_model_and_page_may_lie_in_an_object_store(tmp_path):
    linear().save(tmp_path / "m")
    store, folder = fsspec.filesystem("memory"), f"/{tmp_path.name}"
    store.pipe_file(f"{folder}/m", (tmp_path / "m").read_bytes())
    for _ in range(2):
        bigmc.report(f"memory:/{folder}/m", f"memory:/{folder}/r.html")
        bigmc.report(tmp_path / "m", tmp_path / "r.html")
        assert store.cat_file(f"{folder}/r.html") == (tmp_path / "r.html").read_bytes()
    with pytest.raises(DataError, match="not the result of the same command"):
        bigmc.report(tmp_path / "m", f"memory:/{folder}/m")


def test_equal_models_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        linear().save(tmp_path / name)
        bigmc.report(tmp_path / name, tmp_path / f"{name}.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    pages = [tmp_path / "memory.html", tmp_path / "loaded.html"]
    for model, to in zip((linear(), load_model(tmp_path / "a")), pages, strict=True):
        bigmc.report(model, to)
    assert pages[0].read_bytes() == pages[1].read_bytes()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    labels = rng.choice(["<a>", "b & c", "d"], 600)
    words = {"<a>": "one two", "b & c": "two three", "d": "three four"}
    every = ["one", "two", "three", "four", "five"]
    lines = [f"{words[label]} {' '.join(rng.choice(every, 3))}" for label in labels]
    (folder / "rows.csv").write_text(
        "text,label\n" + "".join(f"{x},{y}\n" for x, y in zip(lines, labels, strict=True))
    )
    return bigmc.ingest(
        folder / "rows.csv", folder / "d.bigmc", text="text", label="label", hash_bits=6,
        memory_limit="100MB",
    )  # fmt: skip


OPTIONS = {
    "sparse": {"alpha": 0.01},
    "boost": {"n_rounds": 4, "validation_fraction": 0.3, "patience": 1},
    "mrc": {"k_max": 3},
}


@pytest.mark.parametrize("learner", OPTIONS)
def test_every_kind_has_a_page_with_its_quality(learner, dataset, tmp_path, monkeypatch, capsys):
    path = tmp_path / "m.model"
    trained = bigmc.train(learner, dataset, path, memory_limit="100MB", **OPTIONS[learner])
    command = f"bigmc report {path} --to {tmp_path / 'r.html'} --dataset {dataset.path} --memory 100MB --json"
    monkeypatch.setattr(sys, "argv", command.split())
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == (tmp_path / "r.html").stat().st_size

    page = Page((tmp_path / "r.html").read_text())
    facts, model = page.facts(), load_model(path)
    assert facts["objective of the model"] == trained["objective"]
    assert facts["upper bound"] == trained["certificate"]["upper"]
    assert facts["learner"] == learner
    assert facts["features used"] == trained["n_nonzero_features"]
    assert facts["hasher.hash_bits"] == 6
    assert len(page.all("article")) == 3
    if learner == "boost":
        early = model.stage < model.n_stages - 1
        assert ("which nothing is certified of" in sentences(page)) == early

    test = dataset["test"]
    scores = np.concatenate([model.shard_scores(test, s) for s in range(test.n_shards)])
    codes = np.concatenate([shard.table(["label"])["label"].to_numpy() for shard in test.shards])
    truth, predicted = test.classes[codes], model.predict(scores)
    assert facts["accuracy"] == told["accuracy"] == accuracy_score(truth, predicted)
    assert facts["macro F1"] == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert facts["samples"] == told["n_samples"] == len(truth)
    matrix = confusion_matrix(truth, predicted, labels=model.classes)
    figures = np.array(precision_recall_fscore_support(truth, predicted, labels=model.classes))
    rows = page.all("tr", page.all("table", class_="figures")[0])[1:]
    place = {label: c for c, label in enumerate(model.classes.tolist())}
    seen = []
    for row in rows:
        cells = page.all("td", row)
        c = place[cells[0]["text"]]
        numbers = [value(page.all("data", cell)[0]) for cell in cells[1:5]]
        assert numbers == pytest.approx([figures[3, c], *figures[:3, c]])
        seen.append(numbers[3])
        wrong = {node["text"]: value(number) for node, number in zip(
            page.all("bdi", cells[5]), page.all("data", cells[5]), strict=True)}  # fmt: skip
        assert wrong == {label: matrix[c, d] for label, d in place.items() if matrix[c, d] and d != c}
    assert len(rows) == 3
    assert seen == sorted(seen)
    assert not page.all("p", class_="warning")


def test_a_page_on_the_training_samples_warns(dataset, tmp_path, monkeypatch):
    path = tmp_path / "m.model"
    bigmc.train("sparse", dataset, path, memory_limit="100MB", alpha=0.01)
    for split, warned in (("train", 1), ("test", 0)):
        page = page_of(path, tmp_path, dataset=dataset, split=split, memory_limit="100MB")
        assert len(page.all("p", class_="warning")) == warned
    assert len(page.all("th", page.all("table", class_="figures")[0])) == 6
    monkeypatch.setattr(bigmc.api.evaluation, "REPORTED_CONFUSION", 5)
    few = page_of(path, tmp_path, dataset=dataset, memory_limit="100MB")
    assert len(few.all("th", few.all("table", class_="figures")[0])) == 5
    assert any("too many classes" in node["text"] for node in few.all("p"))


def test_wide_tables_scroll_by_themselves_on_a_narrow_screen():
    """Else the whole page would be wider than a telephone, and its tables split words letter by letter."""
    narrow = STYLE.partition("@media (max-width")[2].partition("\n}\n")[0]
    assert re.search(r"\.figures \{[^}]*overflow-x: auto", narrow)
    assert re.search(r"\.figures td \{ overflow-wrap: normal", narrow)
