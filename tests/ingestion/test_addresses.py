"""Sources at addresses: the same shards as from local files, without a local copy of them."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3_server import s3_server

from bigmc import api
from bigmc.engine import ThreadEngine
from bigmc.errors import DataError
from bigmc.ingestion.parts.scan import expand_sources
from bigmc.ingestion.sources import remote_file

pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'bigmc[s3]'")
pytest.importorskip("moto.server", reason="moto, which stands in for S3, is not installed")

CONTENTS = {"text": "text", "label": "label", "keep": "n", "hash_bits": 10}


class RangeHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files, and ranges of them, with a tag of their contents."""

    serves_ranges = True

    def send_head(self):
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return None
        data = path.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted and self.serves_ranges:
            start, stop = int(wanted[1]), int(wanted[2] or len(data) - 1) + 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{min(stop, len(data)) - 1}/{len(data)}")
            body = data[start:stop]
        else:
            self.send_response(200)
            body = data
        self.send_header("Accept-Ranges", "bytes" if self.serves_ranges else "none")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.md5(data).hexdigest()}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
        return None

    def log_message(self, *args):
        pass


class NoRangeHandler(RangeHandler):
    serves_ranges = False


def serve(folder, handler):
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *args: handler(*args, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(scope="module")
def storage():
    # fsspec keeps its file systems, and does not see that the environment names another server.
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()
    with s3_server() as url:
        yield url


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def google():
    """Google Cloud Storage, or what passes for it; gcsfs reads its address from the environment."""
    reason = "pip install gcsfs gcp-storage-emulator"
    gcsfs = pytest.importorskip("gcsfs", reason=reason)
    emulator = pytest.importorskip("gcp_storage_emulator.server", reason=reason)
    port = free_port()
    server = emulator.create_server("127.0.0.1", port, in_memory=True)
    server.start()
    gcsfs.GCSFileSystem.clear_instance_cache()
    yield {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}"}
    server.stop()


@pytest.fixture(scope="module")
def azure(tmp_path_factory):
    """Azurite, Microsoft's own stand-in for Azure's blobs, with the account that all of them have."""
    adlfs = pytest.importorskip("adlfs", reason="pip install adlfs")
    program = shutil.which("azurite")
    if program is None:
        pytest.skip("azurite is not installed: npm install --global azurite")
    port = free_port()
    options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobPort", str(port)]
    folder = tmp_path_factory.mktemp("azurite")
    server = subprocess.Popen([program, *options, "--location", str(folder)], stdout=subprocess.DEVNULL)
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            break
        time.sleep(0.1)
    adlfs.AzureBlobFileSystem.clear_instance_cache()
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    account = f"AccountName=devstoreaccount1;AccountKey={key}"
    blobs = f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1"
    yield {"AZURE_STORAGE_CONNECTION_STRING": f"DefaultEndpointsProtocol=http;{account};{blobs};"}
    server.terminate()
    server.wait()


@pytest.fixture(params=["s3", "http", "gs", "az"])
def place(request, tmp_path, monkeypatch):
    """A function that puts files where they have addresses, and the address of their folder."""
    import fsspec

    if request.param == "http":
        (tmp_path / "www").mkdir()
        server, address = serve(tmp_path / "www", RangeHandler)
        request.addfinalizer(server.shutdown)  # noqa: PT021 - only one of the places has a server of its own
        root = tmp_path / "www"

        def put(name, data):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)

        return put, address
    if request.param == "s3":
        monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("storage"))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    elif request.param in ("gs", "az"):
        for name, value in request.getfixturevalue({"gs": "google", "az": "azure"}[request.param]).items():
            monkeypatch.setenv(name, value)
    root = f"{request.param}://b{abs(hash(request.node.name))}"
    fs, path = fsspec.url_to_fs(root)
    fs.mkdir(path)

    def put(name, data):
        fs.pipe_file(f"{path}/{name}", data)

    return put, root


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    words = [" ".join(rng.choice(500, 12).astype(str)) for _ in range(6000)]
    labels = [f"k{i}" for i in rng.integers(0, 4, 6000)]
    return pa.table({"text": words, "label": labels, "n": np.arange(6000)})


def written(table, name, tmp_path):
    """Return the table as the bytes of a file of some format."""
    file = tmp_path / name
    if name.endswith(".parquet"):
        pq.write_table(table, file, row_group_size=900)
    else:
        table.to_pandas().to_csv(file, index=False)
    return file.read_bytes()


def shards_of(folder):
    found = sorted(file for file in (folder / "shards").rglob("*") if file.is_file())
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in found}


def ingest(source, to, **options):
    engine = ThreadEngine(2)
    return api.ingest(source, to, engine=engine, memory_limit="128MB", **{**CONTENTS, **options})


@pytest.mark.exhaustive(keep=4)
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet"])
def test_the_same_shards_as_from_a_local_file(place, table, tmp_path, name, monkeypatch):
    put, root = place
    monkeypatch.setattr(remote_file, "BLOCK_BYTES", 10_000)  # many ranges
    put(f"in/{name}", written(table, name, tmp_path))
    ingest(tmp_path / name, tmp_path / "local.bigmc")
    dataset = ingest(f"{root}/in/{name}", tmp_path / "there.bigmc")
    assert shards_of(tmp_path / "there.bigmc") == shards_of(tmp_path / "local.bigmc")
    manifest = json.loads((tmp_path / "there.bigmc" / "manifest.json").read_text())
    [source] = manifest["provenance"]["recipe"]["sources"]
    assert source["path"] == f"{root}/in/{name}"
    assert source["bytes"] == os.path.getsize(tmp_path / name)
    assert ingest(f"{root}/in/{name}", tmp_path / "there.bigmc").identity == dataset.identity
    api.train("sparse", tmp_path / "local.bigmc", tmp_path / "m.model", alpha=1e-2)
    api.predict(tmp_path / "m.model", tmp_path / name, tmp_path / "p.parquet")
    api.predict(tmp_path / "m.model", f"{root}/in/{name}", tmp_path / "q.parquet")
    assert (tmp_path / "p.parquet").read_bytes() == (tmp_path / "q.parquet").read_bytes()


def test_folders_and_patterns(place, table, tmp_path):
    put, root = place
    if root.startswith("http"):
        pytest.skip("a web server lists nothing")
    for day in ("day=1", "day=2"):
        put(f"in/{day}/a.parquet", written(table, "a.parquet", tmp_path))
    put("in/_SUCCESS", b"")
    put("in/.hidden/a.parquet", b"no")
    put("in/notes.csv", b"a\n1\n")
    days = [f"{root}/in/day=1/a.parquet", f"{root}/in/day=2/a.parquet"]
    assert [source.path for source in expand_sources(f"{root}/in/*/a.parquet")] == days
    assert [source.path for source in expand_sources(f"{root}/in/day=2")] == days[1:]
    for pattern in ("day=*", "day=*/", "day=[12]"):  # which are folders
        assert [source.path for source in expand_sources(f"{root}/in/{pattern}")] == days
    with pytest.raises(DataError, match="one format at a time"):
        expand_sources(f"{root}/in")
    with pytest.raises(DataError, match="no such file"):
        expand_sources(f"{root}/nothing")
    dataset = ingest(f"{root}/in/day=*/", tmp_path / "d.bigmc", label="day", keep=None)
    assert dataset.classes.tolist() == ["1", "2"]


def test_a_changed_source_is_noticed(place, table, tmp_path):
    put, root = place
    data = written(table, "rows.csv", tmp_path)
    put("rows.csv", data)
    ingest(f"{root}/rows.csv", tmp_path / "d.bigmc")
    put("rows.csv", data.replace(b"k1", b"k2"))  # as many bytes
    with pytest.raises(DataError, match=r"rows\.csv has changed since"):
        ingest(f"{root}/rows.csv", tmp_path / "d.bigmc")
    with pytest.raises(DataError, match=r"was ingested into .* and has changed since"):
        ingest(f"{root}/rows.csv", tmp_path / "d.bigmc", append=True)
    put("more.csv", data)
    assert ingest(f"{root}/more.csv", tmp_path / "d.bigmc", append=True).n_samples == 12_000
    assert ingest(f"{root}/more.csv", tmp_path / "d.bigmc", append=True).n_samples == 12_000


def test_what_is_not_there_or_cannot_be_read_in_ranges(place, tmp_path, monkeypatch, request):
    _, root = place
    with pytest.raises(DataError, match=r"none\.csv: no such file"):
        ingest(f"{root}/none.csv", tmp_path / "d.bigmc")
    if root.startswith("http"):
        (tmp_path / "www" / "rows.csv").write_text("text,label,n\n" + "a b,k,1\nc,l,2\n" * 100)
        server, address = serve(tmp_path / "www", NoRangeHandler)
        request.addfinalizer(server.shutdown)
        monkeypatch.setattr(remote_file, "BLOCK_BYTES", 500)
        with pytest.raises(DataError, match="supports byte ranges"):
            ingest(f"{address}/rows.csv", tmp_path / "d.bigmc")


@pytest.mark.exhaustive(keep=2)
def test_an_interrupted_ingest_goes_on(place, table, tmp_path, monkeypatch):
    put, root = place
    put("rows.parquet", written(table, "rows.parquet", tmp_path))
    monkeypatch.setattr("bigmc.ingestion.job.ROWS_PER_PART", 700)
    monkeypatch.setattr("bigmc.ingestion.job.SMALLEST_PART", 1 << 12)
    ingest(tmp_path / "rows.parquet", tmp_path / "local.bigmc")
    read, calls = remote_file.RemoteFile.read, []

    def failing(self, start, stop):
        calls.append(stop - start)
        if len(calls) > 25:
            raise DataError(f"{self.address}: connection lost", "try again")
        return read(self, start, stop)

    monkeypatch.setattr(remote_file.RemoteFile, "read", failing)
    with pytest.raises(DataError, match="connection lost"):
        ingest(f"{root}/rows.parquet", tmp_path / "there.bigmc")
    monkeypatch.setattr(remote_file.RemoteFile, "read", read)
    ingest(f"{root}/rows.parquet", tmp_path / "there.bigmc")
    assert shards_of(tmp_path / "there.bigmc") == shards_of(tmp_path / "local.bigmc")
