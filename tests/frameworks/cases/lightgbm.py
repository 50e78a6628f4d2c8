"""The data of LightGBM."""

from __future__ import annotations

from tests.frameworks.cases.case import MET, Form, FrameworkCase, PodRun, Training, no_options

CASE = FrameworkCase(
    forms=(Form("lightgbm", (1, 1, 4, 2, 8), lists_hosts=True),),
    options=no_options,
    reserved=("LIGHTGBM_RANK", "LIGHTGBM_MACHINES"),
    training=Training("lightgbm/train.py", 2, MET),
    pods=(PodRun("lightgbm", "lightgbm", "lightgbm/train.py", MET),),
)
