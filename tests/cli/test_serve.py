"""`dihedral serve`: the printed address, a clean stop, and errors."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys


def test_it_prints_its_address_answers_and_stops_cleanly(model_folder):
    command = [sys.executable, "-m", "dihedral", "serve", f"mine={model_folder}", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line.startswith("serving mine at http://127.0.0.1:")
    connection = http.client.HTTPConnection(line.split("http://")[1].strip(), timeout=300)
    connection.request("GET", "/v1/models")
    assert json.loads(connection.getresponse().read())["default"] == "mine"
    connection.close()
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate(timeout=300)
    assert server.returncode == 0 and errors.strip() == "stopped"


def test_a_port_in_use_is_reported(cli, model_folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = cli("serve", model_folder, "--port", taken.getsockname()[1])
    assert done.code == 2 and "cannot listen at 127.0.0.1" in done.err and "--port" in done.err


def test_listening_to_other_machines_without_a_key_prints_a_warning(cli, tmp_path):
    warning = "other machines can send requests without a key"
    assert warning in cli("serve", tmp_path, "--host", "0.0.0.0", "--port", 0).err
    assert warning not in cli("serve", tmp_path, "--host", "0.0.0.0", "--port", 0, "--api-key", "sesame").err
    assert warning not in cli("serve", tmp_path, "--port", 0).err


def test_a_descriptor_without_a_listening_socket_is_rejected(cli, model_folder, tmp_path):
    with (tmp_path / "file").open("w") as file:
        done = cli("serve", model_folder, "--fd", file.fileno())
        assert done.code == 2 and "is not a socket" in done.err
    with socket.socket() as unbound:
        done = cli("serve", model_folder, "--fd", unbound.detach())
    assert done.code == 2 and "is not listening" in done.err


def test_a_folder_without_a_model_is_rejected(cli, tmp_path):
    done = cli("serve", tmp_path)
    assert done.code == 2 and "is not a model folder" in done.err


def test_a_key_that_is_not_ascii_is_rejected(cli, model_folder):
    done = cli("serve", model_folder, "--api-key", "sésame")
    assert done.code == 2 and "ASCII" in done.err and "sésame" not in done.err


def test_a_missing_extra_is_named(python, model_folder):
    script = "import sys; sys.modules['fastapi'] = None; from dihedral.cli.main import main; main()"
    done = python("-c", script, "serve", model_folder)
    assert done.returncode == 2 and "pip install 'dihedral[serve]'" in done.stderr
