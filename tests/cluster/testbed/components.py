"""The cluster's programs and manifests, and the Go module that each is built from.

The versions are pinned in `tests/cluster/go/<source>/go.mod`. Programs that run together share one module, so that
packages of the same version are compiled once for all of them: that halves the work.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Manifests:
    """One directory inside a Go module, rendered to a JSON list when the component is built.

    Args:
        name: the name of the list.
        directory: a directory of kustomize, or one that contains only manifests.
    """

    name: str
    directory: str


@dataclass(frozen=True)
class Component:
    """Binaries and manifests that come from one Go module.

    Args:
        source: the directory of `tests/cluster/go` whose go.mod pins the versions.
        packages: binary name -> Go package of its main program; several binaries must have the names that Go gives
            them.
        module: the module that contains the manifests; empty without manifests.
        version_package: Go package like `k8s.io/component-base/version`; its variables are set to the module's version.
    """

    source: str
    packages: dict[str, str]
    module: str = ""
    manifests: tuple[Manifests, ...] = ()
    version_package: str = ""


NEWEST = "newest"
"""All programs of the default cluster."""


def _kubernetes(source: str) -> Component:
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
    return Component(
        source,
        packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in names},
        module="k8s.io/kubernetes",
        # Kueue exits on a server version it cannot parse.
        version_package="k8s.io/component-base/version",
    )


def _jobset(source: str) -> Component:
    return Component(
        source,
        packages={"jobset": "sigs.k8s.io/jobset"},
        module="sigs.k8s.io/jobset",
        manifests=(
            Manifests("crd", "config/components/crd"),
            Manifests("webhook", "config/components/webhook"),
        ),
    )


COMPONENTS: dict[str, Component] = {
    "kubernetes-1.36": _kubernetes(NEWEST),
    "kubernetes-1.35": _kubernetes("kubernetes-1.35"),
    "etcd": Component(NEWEST, packages={"etcd": "go.etcd.io/etcd/server/v3"}),
    "pause": Component(NEWEST, packages={"pause": "stepset.test/cluster/pause"}),
    "coredns": Component(NEWEST, packages={"coredns": "stepset.test/cluster/coredns"}),
    "jobset-0.12": _jobset(NEWEST),
    "jobset-0.11": _jobset("jobset-0.11"),
    "trainer": Component(
        NEWEST,
        packages={"trainer": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"},
        module="github.com/kubeflow/trainer/v2",
        manifests=(
            Manifests("crd", "manifests/base/crds"),
            Manifests("webhook", "manifests/base/webhook"),
            Manifests("runtimes", "manifests/base/runtimes"),
        ),
    ),
    "kueue": Component(
        NEWEST,
        packages={"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
        module="sigs.k8s.io/kueue",
        manifests=(
            Manifests("crd", "config/components/crd"),
            Manifests("webhook", "config/components/webhook"),
            Manifests("visibility", "config/components/visibility"),
        ),
    ),
    # The newest version on the Go module proxy; it needs the packages of Kubernetes 1.30.
    "volcano": Component(
        "volcano",
        packages={
            name: f"volcano.sh/volcano/cmd/{name}" for name in ("controller-manager", "scheduler", "webhook-manager")
        },
        module="volcano.sh/volcano",
        manifests=(Manifests("crd", "config/crd/volcano/bases"),),
    ),
    "kwok": Component(
        NEWEST,
        packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
        module="sigs.k8s.io/kwok",
        manifests=(
            Manifests("stages-node", "kustomize/stage/node/fast"),
            Manifests("stages-pod", "kustomize/stage/pod/fast"),
        ),
    ),
}
