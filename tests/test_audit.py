"""`make lint` without a database of vulnerabilities says that nothing was checked."""

from __future__ import annotations

import importlib.util
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "requirements" / "audit.py"


class Portal(BaseHTTPRequestHandler):
    """Answers every request with a page, as the proxy of a guest network does."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>log in</html>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def audit():
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("audit", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def skips(audit, monkeypatch, capsys, port: int) -> bool:
    """Whether the audit is skipped with a database at this port."""
    monkeypatch.setattr(audit, "DATABASE", f"http://127.0.0.1:{port}/")
    audit.main()
    reason = "no database of vulnerabilities can be reached"
    return capsys.readouterr().out.startswith(f"SKIPPED pip-audit, nothing was checked: {reason}")


def test_without_a_connection_the_audit_is_skipped(audit, monkeypatch, capsys):
    with socket.socket() as silent:  # the port is taken, but nothing listens
        silent.bind(("127.0.0.1", 0))
        assert skips(audit, monkeypatch, capsys, silent.getsockname()[1])


def test_with_the_page_of_a_proxy_the_audit_is_skipped(audit, monkeypatch, capsys):
    with ThreadingHTTPServer(("127.0.0.1", 0), Portal) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert skips(audit, monkeypatch, capsys, server.server_port)
        finally:
            server.shutdown()
            thread.join()
