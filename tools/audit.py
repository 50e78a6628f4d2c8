"""Checks the packages of lock files for known vulnerabilities, with pip-audit and OSV (`make audit`).

pip-audit ignores requirements whose marker does not apply to this machine. pip-audit also reports success if it has
skipped a package. Therefore this program removes the markers, and fails if a package is missing in the report. OSV does
not reject unknown package names. For an unknown package, OSV reports no vulnerabilities.

Exit codes: 0 if no vulnerability is known, 1 if at least one is known, 2 if a package could not be audited.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OSV = "https://api.osv.dev/v1/query"
_PINNED = re.compile(
    r"(?P<name>[A-Za-z0-9][-A-Za-z0-9._]*)(?:\[[^]]*\])?==(?P<version>[A-Za-z0-9.+!]+)\s*(?:;[^\\]*)?\\?"
)
_HASH = re.compile(r"\s+--hash=sha256:[0-9a-f]{64}\s*\\?")


class AuditError(Exception):
    """A package could not be audited. The message has one line."""


@dataclass(frozen=True, order=True)
class Package:
    """A package of a lock file. Its name has the canonical form of PyPI."""

    name: str
    version: str

    @property
    def requirement(self) -> str:
        """The requirement for exactly this version of the package."""
        return f"{self.name}=={self.version}"


def read_lock(path: Path) -> Iterator[Package]:
    """Yields the packages of a lock file. Raises AuditError if a line contains no version, for example a URL."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#") or _HASH.fullmatch(line):
            continue
        if (found := _PINNED.fullmatch(line)) is None:
            raise AuditError(f"{path}: line {number} cannot be audited: {line.strip()!r} pins no version")
        yield Package(canonical(found["name"]), found["version"])


def canonical(name: str) -> str:
    """Returns a package's name in the canonical form, in which PyPI compares names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def rounds(packages: Iterable[Package]) -> list[list[Package]]:
    """Distributes packages over several rounds. Each round contains at most one version of a package.

    pip-audit rejects a list that contains two versions of a package.
    """
    found: list[dict[str, Package]] = []
    for package in sorted(packages):
        place = next((each for each in found if package.name not in each), None)
        if place is None:
            found.append(place := {})
        place[package.name] = package
    return [list(each.values()) for each in found]


def audit(packages: Sequence[Package], service: str, timeout: int) -> dict[Package, list[str]]:
    """Returns the known vulnerabilities of each package.

    Raises AuditError if the report of the service does not contain all packages.
    """
    with tempfile.TemporaryDirectory() as directory:
        requirements = Path(directory, "requirements.txt")
        requirements.write_text("".join(f"{each.requirement}\n" for each in packages))
        options = ["--disable-pip", "--no-deps", "--strict", "--format", "json", "--progress-spinner", "off"]
        source = ["--vulnerability-service", "osv", "--osv-url", service, "--timeout", str(timeout)]
        command = [sys.executable, "-m", "pip_audit", *options, *source, "--cache-dir", directory, "-r", requirements]
        done = subprocess.run(command, capture_output=True, text=True)
    try:
        rows = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise AuditError(f"the vulnerability service {service} is unreachable or has no answer: {last[:300]}") from None
    return _results(packages, rows)


def _results(packages: Sequence[Package], rows: Sequence[Mapping[str, Any]]) -> dict[Package, list[str]]:
    by_name = {canonical(row["name"]): row for row in rows}
    for package in packages:
        row = by_name.get(package.name)
        if row is None or "vulns" not in row:
            reason = "is missing in the report" if row is None else str(row.get("skip_reason", "was skipped"))
            raise AuditError(f"{package.requirement} could not be audited: {reason}")
    return {package: [_described(each) for each in by_name[package.name]["vulns"]] for package in packages}


def _described(found: Mapping[str, Any]) -> str:
    fixed = ", ".join(found.get("fix_versions") or ()) or "no version yet"
    return f"{found['id']}, fixed in {fixed}"


def main() -> int:
    """Audits the lock files that the command line lists, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("locks", nargs="+", type=Path)
    parser.add_argument("--service", default=OSV, help="URL of OSV's query API; default: %(default)s")
    parser.add_argument("--timeout", default=30, type=int, help="seconds to wait for an answer; default: %(default)s")
    given = parser.parse_args()
    places: dict[Package, list[str]] = {}
    found: dict[Package, list[str]] = {}
    try:
        for lock in given.locks:
            for package in read_lock(lock):
                places.setdefault(package, []).append(str(lock))
        for each in rounds(places):
            found |= audit(each, given.service, given.timeout)
    except (AuditError, OSError) as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    for package, texts in found.items():
        for text in texts:
            print(
                f"audit: {package.requirement} ({', '.join(dict.fromkeys(places[package]))}): {text}", file=sys.stderr
            )
    vulnerable = sum(bool(texts) for texts in found.values())
    print(f"{len(found)} packages of {len(given.locks)} lock files: {vulnerable or 'none'} with known vulnerabilities")
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
