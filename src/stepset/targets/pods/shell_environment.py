"""Creates shell code that sets the variables of a command in the same way as the kubelet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepset.plan.expand import references
from stepset.plan.values import Text
from stepset.targets.names import PodNames
from stepset.targets.pods import shell

_VALUE = f"{shell.PREFIX}value_"
_SET_BY_SHELL = ("PWD", "OLDPWD")
"""Variables that shells set and export. If the job sets one of them, the program `env` sets it for the command."""


class ShellEnvironment:
    """Collects the variables of a container. Callers add the variables in the order of the plan.

    The kubelet sets the variables in `rows`. The shell code in `lines` derives all other variables.

    The value of a derived variable can contain a reference `$(NAME)`. If the variable NAME was not added before, the
    container gets a helper variable with the value `$(NAME)`. If the container has a variable NAME, for example from
    `envFrom`, the kubelet replaces the value of the helper variable with the value of NAME.

    A shell passes only some of its variables to the commands that it runs. For example, dash does not pass `my.var`.
    The program `env` sets the variables that the shell does not pass.
    """

    def __init__(self, names: PodNames, cluster_domain: str) -> None:
        self.rows: list[dict[str, Any]] = []
        """The variables of the container, in the form of its field `env`."""
        self.lines: list[str] = []
        """The lines of the script that set the derived variables."""
        self._names = names
        self._domain = cluster_domain
        # The name of a variable -> the shell variable that contains its value.
        self._known: dict[str, str] = {}
        self._derived: set[str] = set()
        # The name of a variable -> the name that the container uses instead.
        self._renamed: dict[str, str] = {}
        # The name of a variable that the program `env` sets -> the shell variable that contains its value.
        self._through_env: dict[str, str] = {}
        # The names of the helper variables. The command must not get these variables.
        self._helpers: list[str] = []

    def add(self, row: Mapping[str, Any], value: Text | None) -> None:
        """Adds a variable.

        Args:
            row: the variable in the form of the container's `env`.
            value: the value of the variable in the plan, if the value is a `Text`. None if the variable has another
                source, such as a key of a Secret.
        """
        name = row["name"]
        if value is not None and (shell.is_derived(value) or shell.refers_to(value, self._derived)):
            word = self.word(value)
            self._derived.add(name)
            self._derive(name, word)
        else:
            self._keep(name, row)

    def word(self, value: Text) -> str:
        """Converts a value to one word of the script. The value can refer to all variables that were added before."""
        known = dict(self._known)
        for part in value.parts:
            for found in references(part) if isinstance(part, str) else ():
                if found.name is not None and found.name not in known:
                    known[found.name] = helper = self._helper()
                    self.rows.append({"name": helper, "value": f"$({found.name})"})
        return shell.derive(value, self._names, self._domain, known)

    def words(self, texts: Iterable[Text]) -> list[str]:
        """Returns the words of the command. If the program `env` sets variables, the first word is `env`."""
        command = [self.word(text) for text in texts]
        if not self._through_env:
            return command
        pairs = [f'{shell.quote(f"{name}=", {})}"${{{inner}}}"' for name, inner in self._through_env.items()]
        return [f'"${{{shell.PREFIX}env}}"', "--", *pairs, *command]

    @property
    def cleanup(self) -> str:
        """The line of the script that unsets the variables that the command must not get.

        In the script, this line must follow the line that uses `words`.
        """
        return f"unset {' '.join((*_SET_BY_SHELL, *self._helpers))}"

    @property
    def uses_env(self) -> bool:
        """Whether the words of the command begin with `env`."""
        return bool(self._through_env)

    def _keep(self, name: str, row: Mapping[str, Any]) -> None:
        text = row.get("value")
        row = {**row, "value": self._rewritten(text)} if isinstance(text, str) and text else dict(row)
        if shell.is_shell_name(name):
            # If HOME is empty, the container runtime sets it after the kubelet has replaced references to HOME. The
            # value of HOME in the shell would therefore differ from the value that the kubelet inserted for the
            # references.
            if name != "HOME":
                self._known[name] = name
            self.rows.append(row)
            return
        helper = self._helper()
        if shell.is_settings_name(name):
            self._renamed[name] = helper
            self.rows.append({**row, "name": helper})
        else:
            self.rows += [row, {"name": helper, "value": f"$({name})"}]
        self._known[name] = self._through_env[name] = helper

    def _derive(self, name: str, word: str) -> None:
        if shell.is_shell_name(name):
            self._known[name] = name
            self.lines.append(f"export {name}={word}")
        else:
            self._known[name] = self._through_env[name] = helper = self._helper()
            self.lines.append(f"{helper}={word}")

    def _helper(self) -> str:
        self._helpers.append(f"{_VALUE}{len(self._helpers)}")
        return self._helpers[-1]

    def _rewritten(self, text: str) -> str:
        """Returns a string in which references to renamed variables are replaced with references to the new names."""
        parts, last = [], 0
        for start, end, name in references(text):
            if name in self._renamed:
                parts += [text[last:start], f"$({self._renamed[name]})"]
                last = end
        return "".join((*parts, text[last:]))
