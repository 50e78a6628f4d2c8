"""What is built from which Go module: the table that `build` works through.

The versions themselves are pinned in `tests/cluster/go/<component>/go.mod`, one module per component.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Manifests:
    """One kustomize directory inside a Go module, rendered to a JSON list when the component is built."""

    name: str
    directory: str


@dataclass(frozen=True)
class Component:
    """Binaries and manifests that come from one Go module.

    Args:
        packages: binary name -> Go package that is its main program.
        module: module that holds the manifests; empty where there are none.
        version_package: Go package of `k8s.io/component-base/version`-like variables, set to the module's version.
    """

    packages: dict[str, str]
    module: str = ""
    manifests: tuple[Manifests, ...] = ()
    version_package: str = ""


def _kubernetes() -> Component:
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
    return Component(
        packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in names},
        module="k8s.io/kubernetes",
        # Kueue exits on a server version it cannot parse.
        version_package="k8s.io/component-base/version",
    )


def _jobset() -> Component:
    return Component(
        packages={"jobset": "sigs.k8s.io/jobset"},
        module="sigs.k8s.io/jobset",
        manifests=(
            Manifests("crd", "config/components/crd"),
            Manifests("webhook", "config/components/webhook"),
        ),
    )


COMPONENTS: dict[str, Component] = {
    "kubernetes-1.36": _kubernetes(),
    "kubernetes-1.35": _kubernetes(),
    "etcd": Component(packages={"etcd": "go.etcd.io/etcd/server/v3"}),
    "pause": Component(packages={"pause": "stepset.test/cluster/pause"}),
    "coredns": Component(packages={"coredns": "github.com/coredns/coredns"}),
    "jobset-0.12": _jobset(),
    "jobset-0.11": _jobset(),
    "trainer": Component(
        packages={"trainer": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"},
        module="github.com/kubeflow/trainer/v2",
        manifests=(
            Manifests("crd", "manifests/base/crds"),
            Manifests("webhook", "manifests/base/webhook"),
            Manifests("runtimes", "manifests/base/runtimes"),
        ),
    ),
    "kueue": Component(
        packages={"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
        module="sigs.k8s.io/kueue",
        manifests=(
            Manifests("crd", "config/components/crd"),
            Manifests("webhook", "config/components/webhook"),
        ),
    ),
    "kwok": Component(
        packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
        module="sigs.k8s.io/kwok",
        manifests=(
            Manifests("stages-node", "kustomize/stage/node/fast"),
            Manifests("stages-pod", "kustomize/stage/pod/fast"),
        ),
    ),
}
