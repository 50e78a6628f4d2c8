"""What the tests must know about each framework. A framework without a module in this package fails the tests."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from stepset.spec.options import KINDS
from tests.frameworks.cases.case import FrameworkCase

CASES: Mapping[str, FrameworkCase] = {kind: import_module(f"tests.frameworks.cases.{kind}").CASE for kind in KINDS}
FORMS = [form for case in CASES.values() for form in case.forms]
PODS = [run for case in CASES.values() for run in case.pods]
