"""Atomic files: either the old content or the new content, never a part of it."""

from __future__ import annotations

import json
import os
import stat
import time

import pytest
import torch

from dihedral import DihedralError
from dihedral.io import files
from dihedral.io.files import atomic_path, make_folder, read_json, read_tensors, write_json, write_tensors
from dihedral.io.jsonl import append_line, read_lines


def test_json_round_trip(tmp_path):
    content = {"name": "é日本", "list": [1, 2.5, None], "nested": {"true": True}}
    write_json(tmp_path / "a.json", content)
    assert read_json(tmp_path / "a.json") == content
    assert "é日本" in (tmp_path / "a.json").read_text(encoding="utf-8")


def test_tensors_round_trip(tmp_path):
    tensors = {"codes": torch.arange(6, dtype=torch.uint8).view(2, 3).T, "x": torch.randn(3, 2, requires_grad=True)}
    write_tensors(tmp_path / "a.safetensors", tensors)
    found = read_tensors(tmp_path / "a.safetensors")
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)


def test_a_block_that_fails_leaves_the_old_content(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"old": True})

    def write():
        with atomic_path(path) as partial:
            partial.write_text("half of the ne")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert read_json(path) == {"old": True}
    assert os.listdir(tmp_path) == ["a.json"]


def test_content_that_is_not_json_leaves_the_old_content(tmp_path):
    write_json(tmp_path / "a.json", {"old": True})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"new": object()})
    assert read_json(tmp_path / "a.json") == {"old": True}
    assert os.listdir(tmp_path) == ["a.json"]


def test_files_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        write_tensors(tmp_path / "a.safetensors", {"x": torch.zeros(1)})
        write_json(tmp_path / "a.json", {})
    finally:
        os.umask(old)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "a.safetensors": 0o640,
        "a.json": 0o640,
    }


@pytest.mark.parametrize("write", [lambda path: write_json(path, {}), lambda path: write_tensors(path, {})])
def test_a_missing_folder_is_an_error(tmp_path, write):
    with pytest.raises(DihedralError, match=r"'.*/nowhere/file' cannot be written: .*No such file"):
        write(tmp_path / "nowhere" / "file")


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1', b"\xff\xfe", b"not json"])
def test_invalid_json_is_an_error(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DihedralError, match=r"'.*a\.json' cannot be read: "):
        read_json(tmp_path / "a.json")


def test_json_that_is_not_an_object_is_an_error(tmp_path):
    (tmp_path / "a.json").write_text("[1, 2]")
    with pytest.raises(DihedralError, match=r"a\.json' does not hold a JSON object"):
        read_json(tmp_path / "a.json")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(DihedralError, match=r"a\.json' cannot be read: .*No such file"):
        read_json(tmp_path / "a.json")
    with pytest.raises(DihedralError, match=r"a\.safetensors' cannot be read: .*No such file"):
        read_tensors(tmp_path / "a.safetensors")


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
def test_a_truncated_tensor_file_is_an_error(tmp_path, keep):
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"x": torch.zeros(100)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DihedralError, match=r"'.*a\.safetensors' cannot be read: "):
        read_tensors(path)


def test_a_pickle_is_not_opened(tmp_path):
    torch.save({"x": torch.zeros(3)}, tmp_path / "a.safetensors")
    with pytest.raises(DihedralError, match=r"a\.safetensors' cannot be read: "):
        read_tensors(tmp_path / "a.safetensors")


def test_a_folder_is_created_with_its_parents(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(DihedralError, match=r"folder '.*file/c' cannot be created: Not a directory"):
        make_folder(tmp_path / "file" / "c")


KILLED_WHILE_WRITING = """
import os, random, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from dihedral.io.files import read_tensors, write_tensors

path = Path(sys.argv[1])
write_tensors(path, {"x": torch.zeros(1)})
kills = 0
seen = set()
for attempt in range(30):
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        for number in range(1, 100_000):
            write_tensors(path, {"x": torch.full((200_000,), float(number))})
            os.write(theirs, b".")
    for _ in range(random.Random(attempt).randrange(8)):  # files that it has written
        os.read(ours, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ours)
    os.close(theirs)
    numbers = read_tensors(path)["x"]
    assert (numbers == numbers[0]).all(), "torn"
    seen.add(float(numbers[0]))
print(len(seen))
"""


def test_a_kill_at_any_moment_leaves_a_complete_file(python, tmp_path):
    done = python("-c", KILLED_WHILE_WRITING, tmp_path / "a.safetensors")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 2  # processes were killed while they wrote


FULL_DISK = """
import resource, sys
from pathlib import Path
import torch
from dihedral.errors import DihedralError
from dihedral.io.files import read_tensors, write_json, write_tensors

folder = Path(sys.argv[1])
write_tensors(folder / "a.safetensors", {"x": torch.ones(10)})
write_json(folder / "a.json", {"old": True})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for write, name, content in (
    (write_tensors, "a.safetensors", {"x": torch.zeros(100_000)}),
    (write_json, "a.json", {"x": "y" * 100_000}),
):
    try:
        write(folder / name, content)
        print("written")
    except DihedralError as error:
        print(error)
"""


def test_a_full_disk_is_an_error_and_keeps_the_old_content(python, tmp_path):
    done = python("-c", FULL_DISK, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2, lines
    for line, name in zip(lines, ("a.safetensors", "a.json"), strict=True):
        assert line.startswith(f"'{tmp_path / name}' cannot be written: ") and "File too large" in line
        assert line.endswith("nothing stored before was changed")
    assert torch.equal(read_tensors(tmp_path / "a.safetensors")["x"], torch.ones(10))
    assert json.loads((tmp_path / "a.json").read_text()) == {"old": True}
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.safetensors"]


# --- hostile files --------------------------------------------------------------------------------------


def test_json_is_bounded_in_depth_before_it_is_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr(files.json, "loads", lambda *_: pytest.fail("was parsed"))
    for text in ('{"a": ' * 101, "[" * 5_000_000, '{"a": "\\"", "b": ' + "[" * 200):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(DihedralError, match=r"a\.json' cannot be read: lists and objects are nested more than 100"):
            read_json(tmp_path / "a.json")


def test_brackets_in_strings_are_not_nesting(tmp_path):
    content = {"a": "[" * 500, "b": '\\"[{' * 500, "[" * 300: "\\"}
    write_json(tmp_path / "a.json", content)
    assert read_json(tmp_path / "a.json") == content


@pytest.mark.parametrize("text", ['{"a": "' + '\\"' * 10**6, '"' * 10**6 + "\\", '{"' + "a" * 10**7])
def test_strings_that_are_not_closed_are_read_in_linear_time(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    started = time.process_time()
    with pytest.raises(DihedralError, match="cannot be read"):
        read_json(tmp_path / "a.json")
    assert time.process_time() - started < 5


def test_json_is_bounded_in_size(tmp_path):
    (tmp_path / "a.json").write_text('{"a": [' + "1," * (8 << 20) + "1]}")
    with pytest.raises(DihedralError, match=r"a\.json' cannot be read: it has more than 8 MiB"):
        read_json(tmp_path / "a.json")


def test_a_header_of_tensors_is_bounded_before_it_is_parsed(tmp_path):
    header = b'{"x": [' + b"[]," * (8 << 20) + b"1]}"
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(DihedralError, match=r"a\.safetensors' cannot be read: its header has more than 8 MiB"):
        read_tensors(tmp_path / "a.safetensors")


@pytest.mark.parametrize("read", [read_json, read_tensors, read_lines])
def test_links_and_pipes_are_not_read(tmp_path, read):
    write_json(tmp_path / "secret", {"secret": True})
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("link", "it is a symbolic link, which is not followed"), ("pipe", "not a regular file")):
        with pytest.raises(DihedralError, match=f"{name}' cannot be read: .*{reason}"):
            read(tmp_path / name)


def test_writing_does_not_follow_links(tmp_path):
    (tmp_path / "other").write_text("kept")
    for name in ("a.json", "log.jsonl"):
        (tmp_path / name).symlink_to(tmp_path / "other")
    write_json(tmp_path / "a.json", {"new": True})
    assert read_json(tmp_path / "a.json") == {"new": True}  # the link was replaced
    with pytest.raises(DihedralError, match=r"log\.jsonl' cannot be written: it is a symbolic link"):
        append_line(tmp_path / "log.jsonl", {"epoch": 1})
    assert (tmp_path / "other").read_text() == "kept"


def test_partial_files_have_names_that_cannot_be_predicted(tmp_path):
    names = set()
    for _ in range(3):
        with atomic_path(tmp_path / "a.json") as partial:
            names.add(partial.parent.name)
            assert partial.parent.stat().st_mode & 0o77 == 0  # nobody else puts a link there
            partial.write_text("{}")
    assert len(names) == 3 and all(name.endswith(".partial-dihedral") for name in names)
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_folder_is_synced_after_the_rename(tmp_path, monkeypatch):
    calls = []
    replace, fsync = os.replace, os.fsync
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("rename"), replace(*names)))
    monkeypatch.setattr(os, "fsync", lambda d: (calls.append(stat.S_ISDIR(os.fstat(d).st_mode)), fsync(d)))
    write_json(tmp_path / "a.json", {})
    assert calls == [False, "rename", True]
