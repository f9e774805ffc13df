"""Appending: the rows of one ingest of everything, old readers undisturbed, nothing twice, nothing lost."""

import errno
import json
import os
import pickle
import signal
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killing import ANY, child
from sklearn.datasets import dump_svmlight_file

from bigmc import api, cli
from bigmc.engine import ThreadEngine
from bigmc.errors import BigmcError, BusyError, DataError, StoreError
from bigmc.ingestion import append
from bigmc.ingestion import job as job_module
from bigmc.ingestion.sources import same_content
from bigmc.ingestion.sources.same_content import content_digests, is_same
from bigmc.ingestion.writing import publication
from bigmc.store.block import read_block
from bigmc.store.files.atomic import exclusive
from bigmc.store.verify import verify
from bigmc.training.feature_names import feature_names

OPTIONS = {"text": "text", "label": "label", "hash_bits": 10, "split": {"train": 0.6, "test": 0.4}, "seed": 5}


def write_csv(path: Path, n_rows: int, labels: str, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    lines = (
        f"{' '.join(rng.choice(90, 5).astype(str))} about {c},{c}\n" for c in rng.choice([*labels], n_rows)
    )
    path.write_text("text,label\n" + "".join(lines))
    return path


@pytest.fixture
def days(tmp_path):
    """Files of three days; a class begins on the second."""
    (tmp_path / "in").mkdir()
    return [
        write_csv(tmp_path / "in" / f"{day}.csv", n, labels, day)
        for day, n, labels in ((1, 700, "xy"), (2, 300, "xyb"), (3, 200, "xyb"))
    ]


def ingest(source, to, **options):
    return api.ingest(source, to, engine=ThreadEngine(1), **{"memory_limit": "64MB"} | options)


def rows_of(dataset) -> dict[int, tuple]:
    """Return by row id: label, split and features."""
    block = read_block(dataset, 0, dataset.n_features)
    matrix = np.zeros((dataset.n_samples, dataset.n_features))
    for s in range(dataset.n_shards):
        columns = np.repeat(np.arange(dataset.n_features), np.diff(block.indptr[s]))
        here = slice(block.indptr[s][0], block.indptr[s][-1])
        matrix[dataset.base[s] + block.indices[here].astype(int), columns] = block.data[here]
    split = np.repeat([shard.split for shard in dataset.shards], np.diff(dataset.base))
    labels = dataset.classes[dataset.labels()].tolist()
    return {
        int(i): (label, name, row.tobytes())
        for i, label, name, row in zip(dataset.row_ids(), labels, split, matrix, strict=True)
    }


@pytest.mark.parametrize("weighting", ["l2", "tfidf", "binary"])
def test_the_rows_of_one_ingest_of_everything(weighting, days, tmp_path):
    whole = ingest(days, tmp_path / "whole.bigmc", **OPTIONS, weighting=weighting)
    to = tmp_path / "d.bigmc"
    ingest(days[0], to, **OPTIONS, weighting=weighting)
    ingest(days[1], to, append=True)
    dataset = ingest(days[2], to, append=True)
    assert rows_of(dataset) == rows_of(whole)
    assert dataset.splits == whole.splits
    assert dataset.nnz == whole.nnz
    assert (dataset.n_features, dataset.features) == (whole.n_features, whole.features)
    for part, of_whole in ((dataset, whole), (dataset["train"], whole["train"])):
        np.testing.assert_array_equal(part.column_nnz(), of_whole.column_nnz())
        if weighting == "tfidf":
            np.testing.assert_array_equal(part.column_scale(), of_whole.column_scale())
        order = [part.classes.tolist().index(label) for label in of_whole.classes]
        for mine, theirs in zip(
            part.class_statistics(0, 1024), of_whole.class_statistics(0, 1024), strict=True
        ):
            np.testing.assert_array_equal(mine[order], theirs)
    assert dataset.classes.tolist() == ["x", "y", "b"]  # the new class has the code after those before
    assert verify(to) == []
    info = api.info(to)
    assert info["n_samples"] == 1200
    assert info["bytes"] == sum(
        path.stat().st_size for path in to.rglob("*") if path.is_file() and path.name != "lock"
    )


def test_statistics_are_read_and_not_computed_again(days, tmp_path, monkeypatch):
    to = tmp_path / "d.bigmc"
    ingest(days[0], to, **OPTIONS)
    dataset = ingest(days[1], to, append=True)
    expected = dataset["train"].class_statistics(0, 1024)
    monkeypatch.setattr("bigmc.store.statistics.read_block", lambda *_: pytest.fail("read the data"))
    reopened = api.open_dataset(to)["train"].class_statistics(0, 1024)
    np.testing.assert_array_equal(reopened, expected)
    half = api.open_dataset(to).subset([0])
    monkeypatch.undo()
    assert half.class_statistics(0, 1024)[0].sum() < expected[0].sum()


def test_readers_of_before_are_not_disturbed(days, tmp_path):
    to = tmp_path / "d.bigmc"
    before = ingest(days[0], to, **OPTIONS)
    fresh = api.open_dataset(to)  # has read nothing but the manifest
    sent = pickle.dumps(fresh["train"])
    expected, statistics = rows_of(before), before["train"].class_statistics(0, 1024)
    files = {path: path.stat().st_mtime_ns for path in to.rglob("*") if path.is_file()}
    ingest(days[1], to, append=True)
    changed = {path.name for path, time in files.items() if path.stat().st_mtime_ns != time}
    assert changed == {"manifest.json"}
    assert rows_of(fresh) == expected
    assert fresh.identity != api.open_dataset(to).identity
    received = pickle.loads(sent)
    assert received.identity == fresh.identity
    appended = api.open_dataset(to)
    assert rows_of(pickle.loads(pickle.dumps(appended))) == rows_of(appended) != expected
    assert received.classes.tolist() == ["x", "y"]
    for reader in (fresh["train"], received):
        np.testing.assert_array_equal(reader.class_statistics(0, 1024), statistics)


def test_nothing_is_appended_twice(days, tmp_path):
    to = tmp_path / "d.bigmc"
    ingest(days[0], to, **OPTIONS)
    ingest(days[1], to, append=True)
    before = {path: path.stat().st_mtime_ns for path in to.rglob("*") if path.name != "lock"}
    ingest(days[1], to, append=True)
    ingest(days[:2], to, append=True, hash_bits=10)
    ingest(days[0], to, **OPTIONS)  # nor is the first ingest, run again, troubled by what came after
    assert {path: path.stat().st_mtime_ns for path in to.rglob("*") if path.name != "lock"} == before
    assert ingest(str(tmp_path / "in" / "*.csv"), to, append=True).n_samples == 1200  # the third is new


def test_the_command_says_so(days, tmp_path, monkeypatch, capsys):
    to = tmp_path / "d.bigmc"
    ingest(days[0], to, **OPTIONS)
    said = []
    for _ in range(2):
        monkeypatch.setattr(
            sys, "argv", ["bigmc", "ingest", str(days[1]), "--to", str(to), "--append", "--json"]
        )
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        assert not exit_.value.code
        out, err = capsys.readouterr()
        said.append((json.loads(out)["n_appended"], "nothing to append" in err))
    assert said == [(300, False), (0, True)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"hash_bits": 12}, "features.hasher.hash_bits: it has 10, asked for 12"),
        ({"ngrams": (1, 1)}, "features.hasher.ngrams"),
        ({"text": "label", "label": "text"}, r'label: it has .*features.text: it has \["text"\], asked for'),
        ({"weighting": "l2"}, "weighting.idf"),
        ({"split": "train=0.5,test=0.5"}, "splits.train"),
        ({"split": "test=0.4,train=0.6"}, "order_of_splits"),
        ({"seed": 6}, "seed: it has 5, asked for 6"),
        ({"group": "text"}, "group"),
        ({"keep": "text"}, "keep"),
        ({"names": False}, "names"),
        ({"n_features": 5}, "--n-features is the width of svmlight"),
        ({"nonsense": 1}, "ingest has no option 'nonsense'"),
    ],
)
def test_other_options_are_refused_by_name(options, reason, days, tmp_path):
    to = tmp_path / "d.bigmc"
    ingest(days[0], to, **OPTIONS)
    for source in (days[1], days[0]):  # also if there is nothing to append
        with pytest.raises(BigmcError, match=reason):
            ingest(source, to, append=True, **options)
    assert api.open_dataset(to).n_samples == 700


@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_file_with_another_time_and_the_same_bytes_is_known(days, tmp_path, n_threads):
    to, options = tmp_path / "d.bigmc", {**OPTIONS, "memory_limit": "1GB"}
    api.ingest(days[0], to, engine=ThreadEngine(n_threads), **options)
    ingest(days[1], to, append=True)
    before = {file: file.read_bytes() for file in to.rglob("*") if file.is_file()}
    for day in days[:2]:
        content = day.read_bytes()
        day.unlink()
        day.write_bytes(content)
        os.utime(day, (1, 1))
    ingest(days[:2], to, append=True)
    assert api.open_dataset(to).n_samples == 1000
    ingest(days[0], to, **options)  # the ingest again
    assert {file: file.read_bytes() for file in to.rglob("*") if file.is_file()} == before
    ingest(days, to, append=True)
    assert api.open_dataset(to).n_samples == 1200


def test_datasets_without_digests_of_their_files_go_by_time(days, tmp_path, monkeypatch):
    """Those of earlier versions, and of files that changed while they were read."""
    to = tmp_path / "d.bigmc"
    monkeypatch.setattr(publication, "content_digests", lambda _: {})
    ingest(days[0], to, **OPTIONS)
    assert not append.read_manifest(to).provenance.get("sha256")
    monkeypatch.undo()
    os.utime(days[0], (1, 1))
    with pytest.raises(DataError, match="has changed since"):
        ingest(days[0], to, append=True)
    identity = {
        "path": str(days[0]),
        "format": "csv",
        "bytes": days[0].stat().st_size,
        "changed": 1_000_000_000,
    }
    assert content_digests([identity]) == {str(days[0]): sha256(days[0].read_bytes()).hexdigest()}
    at = {**identity, "path": "s3://bucket/1.csv", "changed": "etag of the contents"}
    assert is_same(at, dict(at), {})
    assert not is_same({**at, "changed": "another"}, at, {})  # its version tells: nothing is downloaded
    assert content_digests([at]) == {}
    monkeypatch.setattr(same_content, "_MOST_BYTES", identity["bytes"] - 1)
    assert content_digests([identity]) == {}  # too many bytes to read once more
    monkeypatch.undo()
    assert content_digests([{**identity, "changed": 2}, {**identity, "path": "/nowhere"}]) == {}


def test_a_file_that_cannot_be_read_for_its_digest_is_told_and_the_command_again_completes(
    days, tmp_path, monkeypatch
):
    """It was left out without a word, and the dataset had other bytes."""

    def failing(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    ingest(days[0], tmp_path / "whole", **OPTIONS)
    monkeypatch.setattr(same_content, "sha256", failing)
    with pytest.raises(DataError, match=r"1\.csv: .*\(Input/output error\)"):
        ingest(days[0], tmp_path / "again", **OPTIONS)
    monkeypatch.undo()
    ingest(days[0], tmp_path / "again", **OPTIONS)
    whole, again = (
        {file.relative_to(to): file.read_bytes() for file in to.rglob("*") if file.is_file()}
        for to in (tmp_path / "whole", tmp_path / "again")
    )
    assert again == whole
    os.utime(days[0], ns=(1, 1))  # so that the content decides whether it is the same file
    monkeypatch.setattr(same_content, "sha256", failing)
    with pytest.raises(DataError, match=r"1\.csv: .*\(Input/output error\)"):
        ingest(days[0], tmp_path / "whole", append=True)
    monkeypatch.undo()
    ingest(days[0], tmp_path / "whole", append=True)
    assert again == {file: (tmp_path / "whole" / file).read_bytes() for file in again}


def test_what_cannot_be_appended(days, tmp_path):
    to = tmp_path / "d.bigmc"
    with pytest.raises(StoreError, match="no dataset"):
        ingest(days[0], to, append=True)
    assert not to.exists()
    ingest(days[0], to, **OPTIONS)
    first = days[0].read_text()
    times = days[0].stat().st_mtime_ns
    for other in (first + "more,x\n", first.replace(",y", ",x", 1)):  # longer, and as long
        days[0].write_text(other)
        os.utime(days[0], ns=(times, times + 1))
        with pytest.raises(DataError, match=r"1.csv was ingested into .* and has changed since"):
            ingest(days[0], to, append=True)
    pq.write_table(pa.table({"text": ["a b"], "label": [3]}), tmp_path / "n.parquet")
    with pytest.raises(DataError, match="the label 3 does not have the type of the dataset's"):
        ingest(tmp_path / "n.parquet", to, append=True)
    with pytest.raises(DataError, match=r"array data, but .* was made from columns of tables"):
        ingest(np.ones((3, 4)), to, append=True, label=[0, 1, 0])
    (tmp_path / "bad.csv").write_text("text,label\nfine,x\nwithout\n")
    with pytest.raises(DataError, match=r"bad.csv:3: 1 field"):
        ingest(tmp_path / "bad.csv", to, append=True)
    assert api.open_dataset(to).n_samples == 700
    dataset = ingest(tmp_path / "bad.csv", to, append=True, on_bad_row="quarantine")
    assert dataset.n_samples == 701
    assert pq.read_table(to / "appends" / "000001" / "rejects.parquet").num_rows == 1
    (tmp_path / "next.csv").write_text("text,label\nnext,y\n")
    assert ingest(tmp_path / "next.csv", to, append=True).row_ids().max() == 702  # 700 + 2 rows in
    assert verify(to) == []


@pytest.mark.parametrize(
    ("first", "more", "classes"),
    [
        (["1", "0"], ["5", "0"], [0, 1, 5]),
        (["a", "1"], ["2", "10"], ["1", "a", "10", "2"]),
        (["1", "0"], ["5", "07"], "label '07' does not have the type"),
        (["1.5", "0"], ["5", "1.5"], ["0", "1.5", "5"]),
    ],
)
def test_classes_of_text_files(first, more, classes, tmp_path):
    for name, labels in (("a", first), ("b", more)):
        (tmp_path / f"{name}.csv").write_text("t,y\n" + "".join(f"word{y},{y}\n" for y in labels * 3))
    ingest(tmp_path / "a.csv", tmp_path / "d.bigmc", text="t", label="y", hash_bits=4)
    if isinstance(classes, str):
        with pytest.raises(DataError, match=classes):
            ingest(tmp_path / "b.csv", tmp_path / "d.bigmc", append=True)
    else:
        dataset = ingest(tmp_path / "b.csv", tmp_path / "d.bigmc", append=True)
        assert dataset.classes.tolist() == classes
        assert dataset.classes[dataset.labels()].tolist() != []


def test_arrays_and_their_feature_map(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(3, 2, (500, 4)), rng.integers(0, 3, 500)
    to = tmp_path / "d.bigmc"
    first = ingest(X[:300], to, label=y[:300], standardize=True, split={"train": 0.7, "test": 0.3})
    with pytest.raises(DataError, match=r"3 features, and .* has 4"):
        ingest(X[300:, :3], to, label=y[300:], append=True)
    dataset = ingest([X[300:400], X[400:]], to, label=[y[300:400], y[400:]], append=True)
    assert ingest(X[:300], to, label=y[:300], append=True).n_samples == 500
    assert dataset.features["map"] == first.features["map"]
    mean, deviation = (np.array(first.features["map"][name]) for name in ("mean", "deviation"))
    found = rows_of(dataset)
    for i in range(500):
        np.testing.assert_allclose(
            np.frombuffer(found[i][2]), ((X[i] - mean) / deviation).astype(np.float32), rtol=1e-6
        )
        assert found[i][0] == y[i]


def test_svmlight_keeps_its_columns(tmp_path):
    rng = np.random.default_rng(0)
    X, y = (rng.random((90, 6)) < 0.5) * rng.integers(1, 4, (90, 6)), rng.integers(0, 2, 90)
    X[:30, 5], X[0, 5] = 0, 1
    X[30:60, 0] = 0  # nothing in this file says that it counts from 0
    for k in range(3):
        dump_svmlight_file(X[30 * k : 30 * k + 30], y[30 * k : 30 * k + 30], str(tmp_path / f"{k}.svm"))
    to = tmp_path / "d.bigmc"
    ingest(tmp_path / "0.svm", to)
    dataset = ingest([tmp_path / "1.svm", tmp_path / "2.svm"], to, append=True)
    found = rows_of(dataset)
    np.testing.assert_array_equal([np.frombuffer(found[i][2]) for i in range(90)], X)
    (tmp_path / "wide.svm").write_text("1 9:1\n")
    with pytest.raises(DataError, match="6"):
        ingest(tmp_path / "wide.svm", to, append=True)
    assert verify(to) == []


def test_copied_columns_of_other_types_in_an_append_are_texts(tmp_path):
    to, texts = tmp_path / "d.bigmc", {"t": ["aa", "bb"] * 3, "y": [0, 1] * 3}
    for number, ids in enumerate(([*range(6)], [f"x{i}" for i in range(6)], [i + 0.5 for i in range(6)])):
        options = {"text": "t", "label": "y", "hash_bits": 4, "keep": "id", "split": {"train": 1}}
        pq.write_table(pa.table({**texts, "id": ids}), tmp_path / f"{number}.parquet")
        ingest(tmp_path / f"{number}.parquet", to, append=number > 0, **({} if number else options))
    api.train("sparse", to, tmp_path / "m", memory_limit="64MB")
    api.predict(tmp_path / "m", to, tmp_path / "p.parquet", keep="id")
    expected = [*map(str, range(6)), *(f"x{i}" for i in range(6)), *(f"{i}.5" for i in range(6))]
    assert pq.read_table(tmp_path / "p.parquet")["id"].to_pylist() == expected


def test_names_of_all_ingests(days, tmp_path):
    """Counts of equal names add up, so that the model shows what one ingest of everything would."""
    whole, to = tmp_path / "whole.bigmc", tmp_path / "d.bigmc"
    options = OPTIONS | {"hash_bits": 18}  # of a bucket with many names some are dropped
    memory = {"memory_limit": "1GB"}  # with less, rare names are forgotten while they are counted
    ingest(days, whole, **options, **memory)
    ingest(days[0], to, **options, **memory)
    ingest(days[1:], to, append=True, **memory)
    found = []
    for data in (whole, to):
        entries = feature_names(api.open_dataset(data), np.arange(1 << 18), 10**8).to_pylist()
        found.append({(e["bucket"], e["name"], e["sign"]): e["count"] for e in entries})
        assert len(found[-1]) == len(entries) > 1000
    assert found[0] == found[1]


def test_damage_in_an_appended_ingest(days, tmp_path):
    to = tmp_path / "d.bigmc"
    ingest(days[0], to, **OPTIONS)
    ingest(days[1], to, append=True)
    manifest = to / "appends" / "000001" / "manifest.json"
    whole = manifest.read_bytes()
    stray = to / "appends" / "000001" / "classes.parquet"
    stray.write_bytes(stray.read_bytes() + b"x")
    assert any("classes.parquet" in problem for problem in verify(to))
    manifest.write_bytes((to / "manifest.json").read_bytes())
    assert any("not the manifest that was appended" in problem for problem in verify(to))
    manifest.unlink()
    assert verify(to)
    manifest.write_bytes(whole)


COMMITS = [(os, name) for name in ("replace", "rename", "fsync", "unlink", "rmdir")]


def test_killed_at_every_commit_point(days, tmp_path, monkeypatch):
    monkeypatch.setattr(job_module, "SMALLEST_PART", 1 << 12)
    monkeypatch.setattr(job_module, "ROWS_PER_PART", 100)
    start = tmp_path / "d.bigmc"
    ingest(days[0], start, **OPTIONS)
    before, n_before = rows_of(api.open_dataset(start)), api.open_dataset(start).identity

    def copy(name) -> Path:
        to = tmp_path / name
        pa.fs.copy_files(str(start), str(to))
        return to

    expected = rows_of(ingest(days[1], copy("whole"), append=True))
    status, counts = child(lambda: ingest(days[1], copy("counted"), append=True), COMMITS)
    assert os.WIFEXITED(status)
    published = set()
    for point in range(1, counts[ANY] + 1, max(1, counts[ANY] // 12)):
        to = copy(str(point))
        status, _ = child(lambda to=to: ingest(days[1], to, append=True), COMMITS, (ANY, point, "before"))
        assert os.WTERMSIG(status) == signal.SIGKILL
        now = api.open_dataset(to)
        published.add(now.identity != n_before)
        assert rows_of(now) == (before if now.identity == n_before else expected)
        assert verify(to) == []
        assert rows_of(ingest(days[1], to, append=True)) == expected
        assert verify(to) == []
        assert False in published


@pytest.mark.parametrize("when", [None, "before", "after"])
def test_killed_between_the_ingest_and_its_publication(when, days, tmp_path):
    """Whoever appends something else then does not have the first append by accident, even killed at once."""
    to = tmp_path / "d.bigmc"
    ingest(days[0], to, **OPTIONS)
    publish = [(append, "write_atomic")]
    status, _ = child(lambda: ingest(days[1], to, append=True), publish, ("write_atomic", 1, "before"))
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert (to / "appends" / "000001" / "manifest.json").exists()
    assert verify(to) == []
    assert api.open_dataset(to).n_samples == 700
    if when is not None:
        status, _ = child(lambda: ingest(days[2], to, append=True), [(os, "rmdir")], ("rmdir", 1, when))
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert verify(to) == []
    assert ingest(days[2], to, append=True).n_samples == 900
    assert ingest(days[1], to, append=True).n_samples == 1200
    assert verify(to) == []


def test_what_was_appended_is_a_dataset_by_itself(days, tmp_path):
    to = tmp_path / "d.bigmc"
    ingest(days[0], to, **OPTIONS)
    ingest(days[1], to, append=True)
    api.train("sparse", to, tmp_path / "m.model", alpha=1e-2, memory_limit="64MB")
    new = to / "appends" / "000001"
    assert api.info(new)["n_samples"] == 300
    assert api.evaluate(tmp_path / "m.model", new)["n_samples"] == api.info(new)["splits"]["test"]
    assert verify(new) == []


def test_one_at_a_time_and_in_parts(days, tmp_path):
    to = tmp_path / "d.bigmc"
    ingest(days[0], to, **OPTIONS)
    with exclusive(to / "appends" / "lock"), pytest.raises(BusyError, match="another process"):
        ingest(days[1], to, append=True)
    for number in range(2):
        done = api.ingest_part(days[1], to, (number, 2), append=True, memory_limit="64MB")
        assert done["n_samples"] == (300 if number == 0 else 0)
    assert api.open_dataset(to).n_samples == 700
    assert ingest(days[1], to, append=True).n_samples == 1000
    assert api.ingest_part(days[1], to, (0, 2), append=True)["n_samples"] == 0


def test_models_of_before_go_on_and_warm_start_is_near(tmp_path):
    """A tenth of new rows: training from yesterday's model takes fewer passes to the same optimum."""
    first = write_csv(tmp_path / "first.csv", 4000, "vwxyz", 1)
    more = write_csv(tmp_path / "more.csv", 400, "vwxyzb", 2)
    to = tmp_path / "d.bigmc"
    ingest(first, to, **OPTIONS)
    options = {"alpha": 3e-4, "tol": 1e-4, "loss": "log_loss", "memory_limit": "64MB"}
    api.train("sparse", to, tmp_path / "1.model", **options)
    accuracy = api.evaluate(tmp_path / "1.model", to)["accuracy"]
    ingest(more, to, append=True)
    said = api.evaluate(tmp_path / "1.model", to)
    test = api.open_dataset(to)["test"]
    assert said["n_unknown_labels"] == np.count_nonzero(test.classes[test.labels()] == "b") > 0
    assert abs(said["accuracy"] - accuracy) < 0.1
    assert api.load_model(tmp_path / "1.model").classes_.tolist() == [*"vwxyz"]
    cold = api.train("sparse", to, tmp_path / "cold.model", **options)
    warm = api.train("sparse", to, tmp_path / "warm.model", warm_start=tmp_path / "1.model", **options)
    assert api.load_model(tmp_path / "warm.model").classes_.tolist() == [*"vwxyz", "b"]
    assert warm["objective"] == pytest.approx(cold["objective"], rel=2e-4)
    assert warm["n_passes"] < cold["n_passes"]
