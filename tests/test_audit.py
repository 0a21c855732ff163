"""`make lint` without a database of vulnerabilities says that nothing was checked."""

from __future__ import annotations

import importlib.util
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


@pytest.mark.parametrize("portal", [False, True], ids=["nothing listens", "a page of a proxy"])
def test_without_the_database_the_audit_is_skipped(portal, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("audit", SCRIPT)
    audit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(audit)
    with ThreadingHTTPServer(("127.0.0.1", 0), Portal) as server:
        monkeypatch.setattr(audit, "DATABASE", f"http://127.0.0.1:{server.server_port}/")
        thread = threading.Thread(target=server.serve_forever)
        if portal:
            thread.start()
        else:
            server.server_close()
        try:
            audit.main()
        finally:
            if portal:
                server.shutdown()
                thread.join()
    reason = "no database of vulnerabilities can be reached"
    assert capsys.readouterr().out.startswith(f"SKIPPED pip-audit, nothing was checked: {reason}")
