"""The lines of the guide that start clusters elsewhere, as far as they can be tried without one."""

from functools import partial
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest

import bigmc

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "cluster.md"


def lines_of(package):
    """Return the guide's lines of a package, from its import to the next one."""
    text = GUIDE.read_text()
    start = text.index(f"from {package}")
    stop = text.find("\nfrom ", start + 1)
    end = text.index("\n```", start)
    return text[start : end if stop < 0 else min(stop, end)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder where the guide's dataset is."""
    here = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    X = generator.standard_normal((300, 4))
    bigmc.ingest(X, here / "reviews.bigmc", label=(X[:, 0] > 0).astype(int))
    return here


def test_a_local_cluster(folder, monkeypatch):
    monkeypatch.chdir(folder)
    free_port = partial(distributed.LocalCluster, dashboard_address="127.0.0.1:0")
    monkeypatch.setattr(distributed, "LocalCluster", free_port)
    scope = {"bigmc": bigmc}
    with dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}):  # as elsewhere than here
        exec(lines_of("distributed"), scope)
    try:
        assert scope["client"].ncores()
        assert bigmc.load_model("reviews.model").classes_.tolist() == [0, 1]
    finally:
        scope["client"].close()
        scope["cluster"].close()


def test_slurm(folder, monkeypatch):
    """The script it would submit; then the same lines with jobs that are processes of this machine."""
    jobqueue = pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    from dask_jobqueue.local import LocalCluster

    def made(kind):
        def make(**options):
            options |= {"scheduler_options": {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}}
            if kind is LocalCluster:
                del options["queue"], options["walltime"]
                options |= {"cores": 2, "processes": 2, "memory": "8GB"}
            return kind(**options)

        return make

    start = lines_of("dask_jobqueue").split("cluster.scale")[0]
    scope = {"bigmc": bigmc}
    slurm = made(jobqueue.SLURMCluster)
    monkeypatch.setattr(jobqueue, "SLURMCluster", slurm)
    exec(start, scope)
    with scope["cluster"] as cluster:
        script = cluster.job_script()
    assert "#SBATCH -p batch\n" in script
    assert "#SBATCH -t 04:00:00\n" in script
    assert "--nthreads 1 --memory-limit 3.73GiB --nworkers 8" in script

    monkeypatch.setattr(jobqueue, "SLURMCluster", made(LocalCluster))
    monkeypatch.chdir(folder)
    scope = {"bigmc": bigmc}
    lines = (
        lines_of("dask_jobqueue")
        .replace("jobs=10", "jobs=1")
        .replace("wait_for_workers(80)", "wait_for_workers(2)")
    )
    exec(lines, scope)
    try:
        assert len(scope["client"].scheduler_info()["workers"]) == 2
        bigmc.train("mrc", "reviews.bigmc", "threads.model", memory_limit="2GB")
        assert Path("threads.model").read_bytes() == Path("reviews.model").read_bytes()
    finally:
        scope["client"].close()
        scope["cluster"].close()


def pruned(value):
    """Return a resource without its nulls, as a Kubernetes server takes it."""
    if isinstance(value, dict):
        return {key: pruned(below) for key, below in value.items() if below is not None}
    return [*map(pruned, value)] if isinstance(value, list) else value


def test_kubernetes():
    """The specification it makes against the operator's own schema of a cluster."""
    operator = pytest.importorskip("dask_kubernetes.operator", reason="dask-kubernetes is not installed")
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    yaml = pytest.importorskip("yaml")
    scope = {"bigmc": bigmc}
    exec(lines_of("dask_kubernetes").split("cluster = ")[0], scope)
    spec = scope["spec"]
    chart = Path(operator.__file__).parent / "deployment" / "helm" / "dask-kubernetes-operator"
    definition = yaml.safe_load((chart / "crds" / "daskcluster.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    jsonschema.validate(pruned(spec), schema)
    assert spec["spec"]["worker"]["replicas"] == 10
