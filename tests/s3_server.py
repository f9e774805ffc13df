"""A stand-in for S3 on this machine, for tests of several folders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server of `moto` and yield its URL.

    It answers one request after the other. Moto looks whether an object exists and then writes it, so two
    requests at once could both create an object "only if there is none", which S3 never lets happen.
    """
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    lock = threading.Lock()
    moto: Application = DomainDispatcherApplication(create_backend_app)

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with lock:
            return moto(environ, start_response)

    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
