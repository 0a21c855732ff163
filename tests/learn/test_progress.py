"""What a person sees of a run: a bar in a terminal, a line in a notebook, lines elsewhere."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pytest
from rich.console import Console

import dihedral as dh
from dihedral.learn.loggers import ProgressBar


@pytest.fixture
def draw():
    """draw(events): the bar as it stands on a terminal after them."""

    def run(events):
        terminal = io.StringIO()
        with ProgressBar(Console(file=terminal, force_terminal=True, width=160, color_system=None)) as bar:
            for event in events:
                bar(event)
                bar.refresh()
        return [line for line in terminal.getvalue().splitlines() if "epoch" in line][-1]

    return run


START = {"event": "start", "epoch": 0, "epochs": 20}


def epoch(number, **more):
    return {"event": "epoch", "epoch": number, "epochs": 20, "loss": 1.23456, "triples_per_second": 54321, **more}


def test_an_epoch_shows_loss_and_speed(draw):
    text = draw([START, epoch(3)])
    assert "epoch 3/20" in text and "loss 1.2346" in text and "54,321 triples/s" in text and "valid MRR -" in text


def test_a_validation_shows_the_mrr_and_the_best_so_far(draw):
    assert "valid MRR 0.4560 (best 0.5000)" in draw([START, epoch(3, valid_mrr=0.456, best_mrr=0.5)])


def test_the_last_validation_stays_in_sight(draw):
    text = draw([START, epoch(3, valid_mrr=0.456, best_mrr=0.5), epoch(4)])
    assert "0.4560 (best 0.5000)" in text


def test_steps_move_the_bar(draw):
    still, moved = draw([START]), draw([START, {"event": "step", "epoch": 0, "step": 10, "steps": 10}])
    assert moved.count("━") >= 1
    assert still.split("loss")[0] != moved.split("loss")[0]


def test_an_early_end_fills_the_bar(draw):
    text = draw([START, epoch(3), {"event": "end", "epoch": 3}])
    assert "━" * 24 in text


def test_nothing_is_shown_without_progress(family, capfd):
    dh.train(family, "demo/family", dimension=8, epochs=2, progress=False)
    assert capfd.readouterr() == ("", "")


def test_a_run_on_a_terminal_draws_a_bar():
    script = "import dihedral as dh; dh.train(dh.make_family(40), 'demo/family', dimension=8, epochs=3)"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stderr=theirs,
        stdout=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "140"},
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            block = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        written += block
    os.close(ours)
    stdout, _ = process.communicate(timeout=300)
    text = written.decode()
    assert process.returncode == 0, text
    assert "epoch 3/3" in text and "triples/s" in text
    assert stdout == b""


def test_elsewhere_every_validation_is_a_line(family, capfd):
    dh.train(family, "demo/family", epochs=4, dimension=8, validate_every=2)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("epoch")]
    assert (
        len(lines) == 2
        and "epoch 2 of 4: loss " in lines[0]
        and ", valid MRR 0." in lines[0]
        and "(best 0." in lines[0]
    )
