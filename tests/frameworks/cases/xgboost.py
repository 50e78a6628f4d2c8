"""The data of XGBoost."""

from __future__ import annotations

from tests.frameworks.cases.case import MET, Form, FrameworkCase, PodRun, Training, no_options

_TRAINED = {**MET, "models_equal": True}
CASE = FrameworkCase(
    forms=(Form("xgboost", (1, 1, 4, 2, 8)),),
    options=no_options,
    reserved=("DMLC_TASK_ID",),
    training=Training("xgboost/train.py", 2, _TRAINED),
    pods=(PodRun("xgboost", "xgboost", "xgboost/train.py", _TRAINED, target="statefulset"),),
)
