"""The environment of a command that a shell starts: exactly the variables that the kubelet gives to a container."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepset.plan.expand import references
from stepset.plan.values import Text
from stepset.targets.names import PodNames
from stepset.targets.pods import shell

_VALUE = f"{shell.PREFIX}value_"
_SET_BY_SHELL = ("PWD", "OLDPWD")
"""Variables that shells export. Those of the job with these names reach the command through `env`."""


class ShellEnvironment:
    """Collects a container's variables, in their order: those that the kubelet sets, and those that the shell derives.

    A derived text may refer to variables of both kinds. If it refers to a name that this class does not know, the
    container gets a helper variable with the value `$(NAME)`, which the kubelet replaces if it knows the name.

    A variable that the shell would not pass on (`my.var` under dash, `PWD`) reaches the command through `env`.
    """

    def __init__(self, names: PodNames, cluster_domain: str) -> None:
        self.rows: list[dict[str, Any]] = []
        """The container's `env`."""
        self.lines: list[str] = []
        """Lines of the script that set the derived variables."""
        self._names = names
        self._domain = cluster_domain
        self._known: dict[str, str] = {}  # variable -> the shell variable with its value
        self._derived: set[str] = set()
        self._renamed: dict[str, str] = {}  # variable -> the name under which the container has it
        self._through_env: dict[str, str] = {}  # variable -> the shell variable with its value
        self._helpers: list[str] = []  # variables that the command must not get

    def add(self, row: Mapping[str, Any], value: Text | None) -> None:
        """Adds a variable.

        Args:
            row: its row in the container's `env`.
            value: its text in the plan; None if it has no text, such as a key of a Secret.
        """
        name = row["name"]
        if value is not None and (shell.is_derived(value) or shell.refers_to(value, self._derived)):
            word = self.word(value)
            self._derived.add(name)
            self._derive(name, word)
        else:
            self._keep(name, row)

    def word(self, value: Text) -> str:
        """Returns the shell word for a text that may refer to all variables so far."""
        known = dict(self._known)
        for part in value.parts:
            for found in references(part) if isinstance(part, str) else ():
                if found.name is not None and found.name not in known:
                    known[found.name] = helper = self._helper()
                    self.rows.append({"name": helper, "value": f"$({found.name})"})
        return shell.derive(value, self._names, self._domain, known)

    def words(self, texts: Iterable[Text]) -> list[str]:
        """Returns the words of the command, after the command `env` if the shell cannot set all variables."""
        command = [self.word(text) for text in texts]
        if not self._through_env:
            return command
        pairs = [f'{shell.quote(f"{name}=", {})}"${{{inner}}}"' for name, inner in self._through_env.items()]
        return [f'"${{{shell.PREFIX}env}}"', "--", *pairs, *command]

    @property
    def cleanup(self) -> str:
        """The line of the script that removes its own variables and the shell's, after the words are set."""
        return f"unset {' '.join((*_SET_BY_SHELL, *self._helpers))}"

    @property
    def uses_env(self) -> bool:
        """Whether `words` starts with the command `env`."""
        return bool(self._through_env)

    def _keep(self, name: str, row: Mapping[str, Any]) -> None:
        text = row.get("value")
        row = {**row, "value": self._rewritten(text)} if isinstance(text, str) and text else dict(row)
        if shell.is_shell_name(name):
            # The container runtime replaces an empty HOME, after the kubelet has replaced references to it.
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
        """Returns a text of the kubelet with references to renamed variables replaced."""
        parts, last = [], 0
        for start, end, name in references(text):
            if name in self._renamed:
                parts += [text[last:start], f"$({self._renamed[name]})"]
                last = end
        return "".join((*parts, text[last:]))
