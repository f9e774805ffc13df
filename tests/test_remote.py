"""Datasets and models in an object store: the same bits as on a disk, one writer wins, no readable half."""

import copy
import gc
import hashlib
import itertools
import json
import os
import pickle
import shutil
import signal
import sys
import threading

import numpy as np
import pyarrow.parquet as pq
import pytest
from killing import ANY, child
from s3_server import s3_server

from bigmc import api, cli
from bigmc.engine import ThreadEngine
from bigmc.errors import BigmcError, DataError, ModelError, StoreError
from bigmc.store.files import object_store
from bigmc.store.files.object_store import Address

pytestmark = pytest.mark.slow

pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'bigmc[s3]'")
pytest.importorskip("moto.server", reason="moto, which stands in for S3, is not installed")

OPTIONS = {"text": "text", "label": "label", "hash_bits": 10, "split": "train=0.6,test=0.4"}
TRAIN = {"alpha": 1e-3, "memory_limit": "64MB", "engine": ThreadEngine(1)}


@pytest.fixture(scope="module")
def server():
    """A stand-in for S3 on this machine."""
    # fsspec keeps its file systems, and does not see that the environment names another server.
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()
    with s3_server() as url:
        yield url


@pytest.fixture
def bucket(server, tmp_path, monkeypatch, request):
    """Return the address of a new bucket."""
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "BIGMC_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    address = Address(f"s3://b{abs(hash(request.node.name))}")
    with address.file_system() as (fs, path):
        fs.mkdir(path)
    return address.url


@pytest.fixture
def source(tmp_path):
    rng = np.random.default_rng(0)
    lines = (f"{' '.join(rng.choice(60, 6).astype(str))} {c},{c}\n" for c in rng.choice([*"xyz"], 900))
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(lines))
    return tmp_path / "rows.csv"


def ingest(source, to, **options):
    return api.ingest(source, to, memory_limit="64MB", engine=ThreadEngine(1), **{**OPTIONS, **options})


def names(bucket: str) -> list[str]:
    return sorted(Address(bucket).sizes(""))


def test_the_same_bits_as_on_a_disk(source, bucket, tmp_path):
    local, there = tmp_path / "d.bigmc", f"{bucket}/folder/d.bigmc"
    ingest(source, local)
    dataset = ingest(source, there)
    assert dataset.info() == api.info(local) == api.info(there)
    assert api.verify(there) == []
    shutil.rmtree(tmp_path / "cache")  # as on another machine
    said = api.train("sparse", there, f"{bucket}/m.model", **TRAIN)
    assert said["model"] == f"{bucket}/m.model"
    api.train("sparse", local, tmp_path / "m.model", **TRAIN)
    assert Address(f"{bucket}/m.model").read() == (tmp_path / "m.model").read_bytes()
    shutil.rmtree(tmp_path / "cache")
    figures = api.evaluate(f"{bucket}/m.model", there, to=f"{bucket}/m.json")
    assert figures == api.evaluate(tmp_path / "m.model", local)
    assert api.verify(f"{bucket}/m.model") == []
    assert api.load_model(f"{bucket}/m.model").classes_.tolist() == [*"xyz"]
    api.publish([f"{bucket}/m.json"], f"{bucket}/best.model")
    assert Address(f"{bucket}/best.model").read() == (tmp_path / "m.model").read_bytes()
    for data, model, to in ((local, tmp_path / "m.model", "1"), (there, f"{bucket}/m.model", "2")):
        api.predict(model, data, tmp_path / f"{to}.parquet", scores=True)
    api.predict(f"{bucket}/m.model", source, f"{bucket}/p.parquet", scores=True)
    first, second = (pq.read_table(tmp_path / f"{k}.parquet") for k in (1, 2))
    assert first.equals(second)
    assert len(Address(f"{bucket}/p.parquet").read()) > 1000


def test_only_the_shards_that_are_read_are_brought(source, bucket, tmp_path):
    there = f"{bucket}/d.bigmc"
    ingest(source, there)
    shutil.rmtree(tmp_path / "cache")
    dataset = api.open_dataset(there)
    copies = tmp_path / "cache" / "copies"
    assert not [*copies.rglob("rows.parquet")]
    dataset["test"].labels()
    assert len([*copies.rglob("rows.parquet")]) == 1 < dataset.n_shards
    assert not [*copies.rglob("*.partial")]


@pytest.mark.exhaustive
def test_copies_make_room_for_others_but_never_under_a_reader(source, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("BIGMC_CACHE_SIZE", "100KB")  # room for none, whole
    addresses = [f"{bucket}/{k}.bigmc" for k in range(3)]
    copies = tmp_path / "cache" / "copies"
    for k, address in enumerate(addresses):
        ingest(source, address, seed=k)
    shutil.rmtree(tmp_path / "cache")
    first = api.open_dataset(addresses[0])
    labels = first.labels()
    rows = {path.name: path for path in copies.iterdir() if path.is_dir()}
    for address in addresses[1:]:
        gc.collect()  # a dataset that is in a cycle is a reader until then
        assert len(api.open_dataset(address).labels()) == len(labels)
        assert len([path for path in copies.iterdir() if path.is_dir()]) == 2
    np.testing.assert_array_equal(first.labels(), labels)
    assert rows.items() <= {path.name: path for path in copies.iterdir()}.items()
    assert first.column_nnz().sum() == api.open_dataset(addresses[0]).column_nnz().sum() > 0


def test_an_ingest_that_is_done_does_nothing(source, bucket, tmp_path):
    there = f"{bucket}/d.bigmc"
    ingest(source, there)
    before = names(bucket)
    shutil.rmtree(tmp_path / "cache")
    ingest(source, there)
    assert names(bucket) == before
    with pytest.raises(DataError, match=r"was made with other parameters .*seed: it has 0, asked for 3"):
        ingest(source, there, seed=3)
    assert names(bucket) == before


@pytest.mark.exhaustive(keep=1)
@pytest.mark.parametrize(("seed", "reason"), [(0, None), (1, "made with other parameters .*seed: it has 1")])
def test_of_two_writers_one_wins_and_the_other_says_so(seed, reason, source, bucket, tmp_path, monkeypatch):
    """The second machine is through with everything when the first wants to commit."""
    there, create = f"{bucket}/d.bigmc", Address.create

    def late(self, content, name=""):
        monkeypatch.setattr(Address, "create", create)
        monkeypatch.setenv("BIGMC_CACHE", str(tmp_path / "other machine"))
        ingest(source, there, seed=seed)
        monkeypatch.setenv("BIGMC_CACHE", str(tmp_path / "cache"))
        return create(self, content, name)

    monkeypatch.setattr(Address, "create", late)
    if reason is None:
        ingest(source, there)
    else:
        with pytest.raises(DataError, match=reason):
            ingest(source, there)
    assert api.open_dataset(there).ingests[0].manifest.provenance["recipe"]["seed"] == seed
    assert api.verify(there) == []
    assert len({name.split("/")[1] for name in names(bucket)}) == 2  # the manifest and one folder of data


def test_the_store_lets_one_of_many_create(bucket):
    address, won = Address(f"{bucket}/one"), []
    threads = [
        threading.Thread(target=lambda k=k: won.append(k) if address.create(b"%d" % k) else None)
        for k in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert address.read() == b"%d" % won[0]


@pytest.mark.exhaustive
def test_interrupted_uploads_leave_no_readable_half(source, bucket, tmp_path, monkeypatch):
    """Ten uploads of one dataset, each killed a little later than the one before, by SIGKILL."""
    monkeypatch.setattr(object_store, "BATCH", 1)
    there = f"{bucket}/d.bigmc"
    work = [(Address, "send"), (Address, "create")]
    uploads = []
    for number in range(10):
        status, _ = child(
            lambda: ingest(source, there), work, (ANY, 1 + number % 3, ["before", "after"][number % 2])
        )
        if os.WIFEXITED(status):
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        present = names(bucket)
        uploads.append(len(present))
        if f"{there}/manifest.json".removeprefix(bucket + "/") in present:
            break  # killed after the commit: a whole dataset
        with pytest.raises(StoreError, match="there is no dataset"):
            api.open_dataset(there)
    assert len(uploads) == 10
    assert uploads == sorted(uploads)  # each goes on from the one before
    ingest(source, there)
    assert api.verify(there) == []
    ingest(source, tmp_path / "d.bigmc")
    assert api.info(there) == api.info(tmp_path / "d.bigmc")


def test_a_model_has_one_writer_and_its_training_goes_on(source, bucket, tmp_path, monkeypatch):
    from bigmc.store.files.checkpoint import FileCheckpoint

    ingest(source, tmp_path / "d.bigmc")
    to = f"{bucket}/m.model"
    options = {**TRAIN, "loss": "log_loss", "tol": 1e-5}

    def train(**more):
        return api.train("sparse", tmp_path / "d.bigmc", to, **{**options, **more})

    status, _ = child(train, [(FileCheckpoint, "save")], ("save", 1, "after"))
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert [*(tmp_path / "cache").rglob("checkpoint.npz")]
    assert Address(to).read() is None
    train()
    assert not [*(tmp_path / "cache" / "building").iterdir()]
    model = Address(to).read()
    assert train()["n_passes"] > 0  # found, not trained
    assert Address(to).read() == model
    with pytest.raises(ModelError, match=r"alpha: it has 0.001, asked for 0.01"):
        train(alpha=1e-2)
    assert Address(to).read() == model
    Address(to).remove("")

    def overtaken():
        with object_store.built(to) as made:
            made.write_bytes(b"mine")
            Address(to).write(model)

    with pytest.raises(StoreError, match="another process has already written"):
        overtaken()
    assert Address(to).read() == model


def test_a_file_that_its_caller_may_replace_is_replaced(bucket):
    to = f"{bucket}/m.model"
    for before, content in ((None, b"one"), (b"one", b"other"), (b"other", b"other")):
        with object_store.built(to) as made:
            assert (made.read_bytes() if made.exists() else None) == before
            made.write_bytes(content)
        assert object_store.read_file(to) == content


def test_an_append_with_other_features_is_refused(source, bucket, tmp_path):
    there, other = f"{bucket}/d.bigmc", tmp_path / "other.bigmc"
    ingest(source, there)
    ingest(source, other, hash_bits=11)
    assert object_store.publish(other, f"{there}/appends/000001")
    with pytest.raises(StoreError, match="its n_features is not that of the dataset"):
        api.open_dataset(there)


@pytest.mark.exhaustive
def test_appending(source, bucket, tmp_path, monkeypatch):
    """As on a disk; the second of two that append at once is told, and appends when it tries again."""
    more = [tmp_path / f"{k}.csv" for k in range(3)]
    for k, path in enumerate(more):
        path.write_text(
            "text,label\n" + "".join(f"{i} {k} about {c},{c}\n" for i in range(60) for c in "xyzw")
        )
    there, local = f"{bucket}/d.bigmc", tmp_path / "d.bigmc"
    for to in (there, local):
        ingest(source, to)
        api.ingest(more[0], to, append=True)
        api.ingest(more[:1], to, append=True)
    before, create = api.open_dataset(there), Address.create

    def late(self, content, name=""):
        monkeypatch.setattr(Address, "create", create)
        monkeypatch.setenv("BIGMC_CACHE", str(tmp_path / "other machine"))
        api.ingest(more[1], there, append=True)
        monkeypatch.setenv("BIGMC_CACHE", str(tmp_path / "cache"))
        return create(self, content, name)

    monkeypatch.setattr(Address, "create", late)
    with pytest.raises(DataError, match="another process has appended"):
        api.ingest(more[2], there, append=True)
    for path in more[1:]:
        for to in (there, local):
            api.ingest(path, to, append=True)
    shutil.rmtree(tmp_path / "cache")
    remote_, whole = api.open_dataset(there), api.open_dataset(local)
    assert remote_.n_samples == 900 + 3 * 240
    assert before.n_samples == 900 + 240
    assert len(pickle.loads(pickle.dumps(before["train"])).labels()) == before.splits["train"]
    np.testing.assert_array_equal(remote_.labels(), whole.labels())
    np.testing.assert_array_equal(remote_.row_ids(), whole.row_ids())
    np.testing.assert_array_equal(remote_.column_nnz(), whole.column_nnz())
    assert remote_.classes.tolist() == whole.classes.tolist() == [*"xyzw"]
    assert api.verify(there) == api.verify(local) == []


def test_damage(source, bucket, tmp_path):
    there = f"{bucket}/d.bigmc"
    ingest(source, there)
    shutil.rmtree(tmp_path / "cache")
    victim = next(name for name in names(there) if name.endswith("data/c/0"))
    content = Address(there).read(victim)
    Address(there).write(b"x" * len(content), victim)
    Address(there).write(b"x", victim.split("/")[0] + "/stray")
    problems = api.verify(there)
    assert [problem.rsplit(": ", 1)[1] for problem in problems] == [
        "its contents have changed", "is not in the manifest",
    ]  # fmt: skip
    with pytest.raises(StoreError, match="does not match the manifest"):
        api.train("sparse", there, tmp_path / "m.model", **TRAIN)
    Address(there).remove(victim)
    assert any(problem.endswith("is missing") for problem in api.verify(there))


def _set_path(fields, path):
    fields["files"][0]["path"] = path


def _set_file_of_a_shard(fields, path):
    fields["shards"][0]["files"][0][0] = path


def _set_shard(fields, path):
    fields["shards"][0]["name"] = path


def _set_append(fields, path):
    fields["appends"] = [path]


def _repeat_file(fields, path):
    fields["files"].append({**fields["files"][0]})


def test_a_manifest_of_a_stranger_writes_nothing_outside_the_cache(source, bucket, tmp_path, monkeypatch):
    """The objects lie wherever the manifest says, with the digests that it gives."""
    there = Address(f"{bucket}/d.bigmc")
    ingest(source, there.url, split="all=1.0")  # each file is copied for each manifest
    original = json.loads(there.read("manifest.json"))
    original.pop("checksum")
    data = next(name for name in names(there.url) if "/" in name).split("/")[0]
    copies = tmp_path / "other" / "cache" / "copies"
    monkeypatch.setenv("BIGMC_CACHE", str(copies.parent))
    copies.mkdir(parents=True)
    before = set(tmp_path.rglob("*"))
    changes = (_set_path, _set_file_of_a_shard, _set_shard, _set_append, _repeat_file)
    paths = ("../../../outside", str(tmp_path / "outside"), "x/../../../outside", "..")
    for change, path in {*zip(changes, itertools.cycle(paths)), *((_set_path, path) for path in paths)}:
        fields = copy.deepcopy(original)
        change(fields, path)
        text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        content = json.dumps(fields | {"checksum": hashlib.sha256(text).hexdigest()}).encode()
        with there.file_system() as (fs, base):
            fs.copy(
                f"{base}/{data}", f"{base}/data-{hashlib.sha256(content).hexdigest()[:16]}", recursive=True
            )
        there.write(content, "manifest.json")
        with pytest.raises(StoreError) as error:
            api.info(there.url)
        assert "\n" not in str(error.value)
        assert api.verify(there.url) != []
        assert {file for file in tmp_path.rglob("*") if copies not in file.parents} == before


def test_a_commit_that_lands_while_its_answer_is_lost(source, bucket, tmp_path, monkeypatch):
    """The client asks again and is told that there is an object: it is its own."""
    from aiobotocore.httpsession import AIOHTTPSession
    from botocore.exceptions import ConnectionClosedError

    plain, lost = AIOHTTPSession.send, []

    async def send(session, request):
        answer = await plain(session, request)
        if "If-None-Match" in request.headers and not lost:
            lost.append(request.url)
            raise ConnectionClosedError(endpoint_url=request.url)
        return answer

    monkeypatch.setattr(AIOHTTPSession, "send", send)
    ingest(source, f"{bucket}/d.bigmc")
    monkeypatch.undo()
    assert len(lost) == 1
    ingest(source, tmp_path / "d.bigmc")


def test_what_does_not_work_is_said(source, bucket, tmp_path, monkeypatch):
    with pytest.raises(StoreError, match="there is no dataset at s3://"):
        api.open_dataset(f"{bucket}/d.bigmc")
    with pytest.raises(StoreError, match="there is nothing at s3://"):
        api.load_model(f"{bucket}/m.model")
    with pytest.raises(StoreError, match=r"s3://there-is-no-such-bucket/d.bigmc: .* bucket does not exist"):
        ingest(source, "s3://there-is-no-such-bucket/d.bigmc")
    assert not (tmp_path / "cache").exists()  # it is known before the work
    with pytest.raises(StoreError, match="there is no dataset at"):
        ingest(source, f"{bucket}/d.bigmc", append=True)
    with pytest.raises(DataError, match="a local disk"):
        api.sparse_path(tmp_path, f"{bucket}/path")
    with pytest.raises(BigmcError, match="nothing://x"):
        api.open_dataset("nothing://x")


def test_the_commands(source, bucket, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = "--text text --label label --hash-bits 10 --memory 64MB"
    for command in (
        f"ingest {source} --to {bucket}/d.bigmc {options}",
        f"train sparse {bucket}/d.bigmc --to {bucket}/m.model --alpha 1e-3",
        f"evaluate {bucket}/m.model {bucket}/d.bigmc",
        f"predict {bucket}/m.model {bucket}/d.bigmc --to {bucket}/p.parquet",
        f"inspect {bucket}/m.model",
        f"info {bucket}/m.model",
        f"verify {bucket}/d.bigmc",
        f"fit {bucket}/d.bigmc --to fitted.model --report {bucket}/fitted.html --time 1s",
    ):
        monkeypatch.setattr(sys, "argv", ["bigmc", *command.split(), "--json"])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capsys.readouterr()
        assert not exit_.value.code, err
        assert json.loads(out)
    assert b"</html>" in Address(f"{bucket}/fitted.html").read()
