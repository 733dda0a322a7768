"""Real object stores on loopback, and a proxy before them that makes them fail.

moto serves S3, gcp-storage-emulator Google Cloud Storage. Every request comes by the proxy, which
forwards it, or does to it what a test asks for. It adds what the emulator leaves out: generations
of objects, in answers and as conditions of writes, and the same answer for an upload that is done
when its last request comes again.
"""

import contextlib
import http.client
import json
import logging
import os
import socket
import struct
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from jaxlm import storage

BUCKET, SECRET = "bucket", "hunter2-is-secret"
UNCHECKED = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, Signature=0"
"""moto wants a signature, and does not check it."""
DROPPED = {"connection", "transfer-encoding", "keep-alive", "content-length"}


@dataclass
class Fault:
    """What is done to `times` requests with `part` in their path, when `after` have gone by."""

    kind: str
    """A status, as "503"; "reset", "stall", "truncated" (less than announced), "short" (half, and
    announced as such), "flipped" (one bit), "slow" (0.2 s late)."""
    part: str = ""
    times: int = 1
    method: str = "GET"
    after: int = 0


@dataclass
class Proxy:
    """What a test sees of it."""

    scheme: str
    port: int = 0
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """METHOD PATH of each."""
    taking: threading.Lock = field(default_factory=threading.Lock)
    """Held while a fault is counted: requests come in threads."""
    released: threading.Event = field(default_factory=threading.Event)
    """Ends what stalls."""
    writing: threading.Lock = field(default_factory=threading.Lock)
    """Held by a write with a condition, which nothing may come between."""
    uploads: dict[str, tuple[http.client.HTTPResponse, bytes]] = field(default_factory=dict)
    """Those that are done, by their ids: the answers."""

    def url(self, name: str) -> str:
        """Of an object."""
        return f"{self.scheme}://{BUCKET}/{name}"

    def media(self, name: str) -> str:
        """What the path of a request for an object's bytes has in it."""
        place = f"/{BUCKET}" if self.scheme == "s3" else f"/download/storage/v1/b/{BUCKET}/o"
        return f"{place}/{quote(name, safe='/' if self.scheme == 's3' else '')}"

    def take(self, method: str, path: str) -> str:
        """The fault for a request, "" if there is none."""
        with self.taking:
            for fault in self.faults:
                if fault.times == 0 or fault.part not in path or fault.method != method:
                    continue
                if fault.after == 0:
                    fault.times -= 1
                    return fault.kind
                fault.after -= 1
        return ""

    def count(self, part: str) -> int:
        """GET requests for what has `part` in its path."""
        return sum(r.startswith("GET") and part in r for r in self.requests)


@contextlib.contextmanager
def proxy(scheme: str, to_port: int) -> Iterator[Proxy]:
    """A proxy before a server on this machine."""
    state = Proxy(scheme)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def handle_any(self) -> None:
            _handle(self, state, to_port)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = handle_any

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Clients that are killed leave connections."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield state
    finally:
        state.released.set()
        server.shutdown()
        server.server_close()


def _handle(request: BaseHTTPRequestHandler, state: Proxy, port: int) -> None:
    body = _body(request)
    state.requests.append(f"{request.command} {request.path}")
    kind = state.take(request.command, request.path)
    if kind == "reset":
        linger = struct.pack("ii", 1, 0)
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        request.close_connection = True
        request.connection.close()
        return
    if kind == "stall":
        state.released.wait(20)
        request.close_connection = True
        return
    if kind == "slow":
        time.sleep(0.2)
    if kind.isdecimal():
        _answer(request, int(kind), {}, b"no", 2)
        return
    headers = {k: v for k, v in request.headers.items() if k.lower() not in DROPPED}
    query = _query(request.path)
    wanted, upload = query.get("ifGenerationMatch"), query.get("upload_id")
    with state.writing if request.command != "GET" else contextlib.nullcontext():
        if wanted is not None and wanted != _generation(request.path, port):
            _answer(request, 412, {}, b"condition", len(b"condition"))
            return
        response, data = _ask(port, request.command, request.path, body, headers)
    if upload is not None and response.status == 200:
        state.uploads[upload] = response, data
    elif upload in state.uploads:
        response, data = state.uploads[upload]
    announced = response.headers.get("Content-Length")
    length = len(data) if request.command != "HEAD" else int(announced or 0)
    if kind == "truncated":
        data = data[: len(data) // 2]
        request.close_connection = True
    elif kind == "short":
        data = data[: len(data) // 2]
        length = len(data)
    elif kind == "flipped":
        data = bytes([data[0] ^ 1]) + data[1:]
    kept = {k: v for k, v in response.headers.items() if k.lower() not in DROPPED}
    if kind in ("short", "flipped"):  # the store itself believes in it
        kept = {k: v for k, v in kept.items() if "checksum" not in k.lower()}
    if state.scheme == "gs" and request.command == "GET" and "alt=media" in request.path:
        kept["x-goog-generation"] = _generation(request.path, port)
    _answer(request, response.status, kept, data, length)


def _ask(
    port: int, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[http.client.HTTPResponse, bytes]:
    upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(upstream):
        upstream.request(method, path, body, headers)
        response = upstream.getresponse()
        return response, response.read()


def _query(path: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}


def _generation(path: str, port: int) -> str:
    """Of the object that a request to Google's store is about; "0" where there is none."""
    name = _query(path).get("name") or unquote(urlsplit(path).path.rpartition("/")[2])
    at = f"/storage/v1/b/{BUCKET}/o/{quote(name, safe='')}"
    response, data = _ask(port, "GET", at, None, {})
    return "0" if response.status == 404 else json.loads(data)["generation"]


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding", "").lower() == "chunked":
        found = b""
        while size := int(request.rfile.readline().split(b";")[0], 16):
            found += request.rfile.read(size)
            request.rfile.readline()
        request.rfile.readline()
        return found
    return request.rfile.read(int(request.headers.get("Content-Length") or 0))


def _answer(
    request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], data: bytes, length: int
) -> None:
    request.send_response_only(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(length))
    if request.close_connection:
        request.send_header("Connection", "close")
    request.end_headers()
    if request.command != "HEAD":
        with contextlib.suppress(OSError):
            request.wfile.write(data)


@contextlib.contextmanager
def s3() -> Iterator[Proxy]:
    """An S3 server with an empty bucket; the environment names it."""
    with _quiet():
        from moto.server import ThreadedMotoServer
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with proxy("s3", server.get_host_and_port()[1]) as found:
        names = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{found.port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
        }
        _request(found.port, "PUT", f"/{BUCKET}", b"")
        with _environment(names):
            yield found
    server.stop()


@contextlib.contextmanager
def gcs() -> Iterator[Proxy]:
    """A server of Google Cloud Storage with an empty bucket; the environment names it."""
    with _quiet():
        from gcp_storage_emulator.server import create_server
    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket=BUCKET)
    server.start()
    httpd: Any = server._api._httpd  # it tells no other way which port it got
    port = httpd.server_port
    with proxy("gs", port) as found:
        url = f"http://127.0.0.1:{found.port}"
        with _environment({"STORAGE_EMULATOR_HOST": url, "TENSORSTORE_GCS_HTTP_URL": url}):
            yield found
    server.stop()


def _request(port: int, method: str, path: str, body: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Authorization": UNCHECKED})
        response = connection.getresponse()
        assert response.status < 300, response.read()
        response.read()


@contextlib.contextmanager
def _environment(names: dict[str, str]) -> Iterator[None]:
    """Inside, the environment names a server; clients of this process that knew another go."""
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    storage.forget_clients()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        storage.forget_clients()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    for name in ("werkzeug", "gcp_storage_emulator", "GCS"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that serve tests alone
        yield


def put(store: Proxy, name: str, data: bytes) -> str:
    """Writes an object; returns its URL."""
    if store.scheme == "s3":
        _request(store.port, "PUT", f"/{BUCKET}/{quote(name)}", data)
    else:
        at = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(name, safe='')}"
        _request(store.port, "POST", at, data)
    return store.url(name)


def put_tree(store: Proxy, name: str, root: Path) -> str:
    """Writes every file below a directory; returns the URL that they are below."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            put(store, f"{name}/{path.relative_to(root)}", path.read_bytes())
    return store.url(name)
