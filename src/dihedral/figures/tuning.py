"""Figures of a search: its best valid MRR over time, and the importance of each setting."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from optuna.exceptions import ExperimentalWarning
from optuna.visualization import matplotlib as plots


def draw_search(study: Any, folder: Path) -> list[Path]:
    """Draw history.png and, if two trials differ in valid MRR, importances.png for an Optuna study."""
    values = {trial.value for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # the plots have been experimental since 2020
        drawn = [_save(plots.plot_optimization_history(study, target_name="valid MRR"), folder / "history.png")]
        if len(values) > 1:
            axes = plots.plot_param_importances(study, target_name="valid MRR")
            drawn.append(_save(axes, folder / "importances.png"))
    return drawn


def _save(axes: Any, path: Path) -> Path:
    axes.figure.savefig(path, dpi=140, bbox_inches="tight")
    plt.close(axes.figure)
    return path
