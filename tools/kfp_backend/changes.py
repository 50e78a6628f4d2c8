"""Copies the sources, and changes the copies so that they can be built on this machine.

The source directories remain unchanged. The reasons for the changes are:

- KFP's API server imports SQLite, which needs cgo. The API server uses SQLite only in its own tests.
- KFP's compiler program does not initialise the proxy settings that its library reads.
- Argo is built with the module versions that KFP uses. Then KFP and Argo share the compiled packages of Kubernetes.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.testbed.layout import TestbedError

from .sources import Sources

_UNUSED = shutil.ignore_patterns(".git", "docs", "frontend", "node_modules", "samples", "sdk", "test_data", "ui")


@dataclass(frozen=True)
class Change:
    """A replacement of a text in a file of a source directory. The file must contain the text exactly once."""

    file: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Changes the file below `root`. Raises TestbedError if the file does not contain the text exactly once."""
        path = root / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(self.old) != 1:
            raise TestbedError(f"{self.file} is not the file of the supported version; see tools/kfp-backend --help")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


KFP_CHANGES = (
    Change("backend/src/apiserver/storage/db.go", '\tsqlite3 "github.com/mattn/go-sqlite3"\n', ""),
    Change(
        "backend/src/apiserver/storage/db.go",
        "\tsqlError, ok := err.(sqlite3.Error)\n\treturn ok && sqlError.Code == sqlite3.ErrConstraint\n",
        '\treturn err != nil && strings.Contains(err.Error(), "constraint")\n',
    ),
    Change(
        "backend/src/v2/cmd/compiler/main.go",
        '\t"github.com/kubeflow/pipelines/backend/src/v2/compiler/argocompiler"\n',
        '\t"github.com/kubeflow/pipelines/backend/src/apiserver/config/proxy"\n'
        '\t"github.com/kubeflow/pipelines/backend/src/v2/compiler/argocompiler"\n',
    ),
    Change(
        "backend/src/v2/cmd/compiler/main.go",
        "func main() {\n\tflag.Parse()\n",
        "func main() {\n\tflag.Parse()\n\tproxy.InitializeConfigWithEnv()\n",
    ),
)
ARGO_CHANGES = (
    # The changed file is a part of Argo's own API server, which is not built. Since Kubernetes 1.35, events do not have
    # the methods of golang/protobuf.
    Change(
        "pkg/apiclient/workflow/workflow.pb.gw.go",
        "forward_WorkflowService_WatchEvents_0(ctx, mux, outboundMarshaler, w, req,"
        " func() (proto.Message, error) { return resp.Recv() }",
        "forward_WorkflowService_WatchEvents_0(ctx, mux, outboundMarshaler, w, req,"
        " func() (proto.Message, error) { _, err := resp.Recv(); return nil, err }",
    ),
    # Since Kubernetes 1.34, the interface labels.Labels has this method.
    Change(
        "workflow/executor/resource.go",
        "// Get returns the value for the provided label.\n",
        "// Lookup returns the value for the provided label, and whether the label exists.\n"
        "func (g gjsonLabels) Lookup(label string) (string, bool) {\n"
        "\treturn g.Get(label), g.Has(label)\n"
        "}\n\n"
        "// Get returns the value for the provided label.\n",
    ),
)


def copy_and_change(sources: Sources, target: Path) -> Sources:
    """Copies both source directories to `target`, and changes the copies.

    Raises:
        TestbedError: a file does not have the expected content, or cannot be copied.
    """
    found = Sources(target / "kfp", target / "argo")
    try:
        for source, copy in ((sources.kfp, found.kfp), (sources.argo, found.argo)):
            shutil.copytree(source, copy, symlinks=True, ignore=_UNUSED)
    except (OSError, shutil.Error) as error:
        raise TestbedError(f"the sources cannot be copied: {str(error)[:300]}") from error
    for change in KFP_CHANGES:
        change.apply(found.kfp)
    for change in ARGO_CHANGES:
        change.apply(found.argo)
    return found
