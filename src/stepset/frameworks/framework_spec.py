"""The description of a framework: what every part of stepset must know about it.

Each module of `stepset.frameworks.kinds` contains one description, with the name `SPEC`. No field has a default value.
Therefore a framework cannot be defined without a list of ports, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stepset.plan.model import LaunchPlan
from stepset.spec.job import TrainingJob


class Listeners(NamedTuple):
    """The programs of a run that listen at every address of their machine. docs/security.md states how to measure them.

    Args:
        at_master: the programs that listen on the port `master` of the plan. Empty if there are none.
        assigned: the programs that listen on ports that the system assigns. Empty if there are none.
    """

    at_master: str
    assigned: str


NO_LISTENERS = Listeners("", "")


class Import(NamedTuple):
    """A module whose import shows that a script uses a framework.

    Args:
        module: the name of the module.
        needs: what the script must do to join the training world.
        order: when the module is compared with the imports of a script. `first` is for a module that is used on top of
            another framework. `last` is for a module that scripts of other frameworks import, too.
    """

    module: str
    needs: str
    order: Literal["first", "usual", "last"] = "usual"


@dataclass(frozen=True, kw_only=True)
class FrameworkSpec:
    """The description of a framework.

    Args:
        name: the name of the framework in texts for users. Empty if the README does not list the framework.
        plan: creates the plan of a job whose ranks are not started by mpirun.
        listeners: the programs that other hosts could reach if stepset did not confine the ports of a local run.
        world_variables: regular expressions for the names of variables that contain the position of a process in the
            world. A local run removes these variables from the environment of the caller.
        programs: the programs that start the ranks, and for each program, how the user installs it.
        packages: the Python packages whose versions `stepset doctor` prints.
        imports: the modules whose import shows that a script uses the framework.
        pages: the names of the pages in docs/frameworks, without the suffix. tools/framework_docs.py lists them.
    """

    name: str
    plan: Callable[[TrainingJob], LaunchPlan]
    listeners: Listeners
    world_variables: tuple[str, ...]
    programs: Mapping[str, str]
    packages: tuple[str, ...]
    imports: tuple[Import, ...]
    pages: tuple[str, ...]
