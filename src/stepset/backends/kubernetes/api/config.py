"""Reads the API server's address and credentials with the `kubernetes` package. The functions may block.

Tokens and certificates may be renewed while a client uses them. Then the client reads the configuration again.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NewType

from stepset.backends.kubernetes.api.kubeconfig import load_into
from stepset.backends.kubernetes.api.replies import unauthorized
from stepset.backends.option_names import Interface
from stepset.errors import BadInputError

Namespace = NewType("Namespace", str)

_HEADERS: Mapping[str, str] = {"Accept": "application/json", "User-Agent": "stepset"}


@dataclass(frozen=True, eq=False)
class ClientConfig:
    """The address and credentials from a kubeconfig, a service account or an Airflow connection.

    `configuration` is a kubernetes.client.Configuration. `namespace` is the default namespace.
    """

    configuration: Any
    namespace: Namespace
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def server(self) -> str:
        """The server's address, such as `https://10.0.0.1:6443`."""
        return str(self.configuration.host).rstrip("/")

    @property
    def renews_token(self) -> bool:
        """Whether `headers` may block because it reads a token file or starts a credential plugin."""
        return self.configuration.refresh_api_key_hook is not None

    def headers(self) -> dict[str, str]:
        """Returns the headers of a request, including the bearer token.

        Raises UnauthorizedError if the credential plugin or the token file provides no token.
        """
        try:
            with self._lock:
                token = self.configuration.auth_settings().get("BearerToken")
        except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            raise unauthorized(self.server) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "kubernetes":  # kubernetes.config.ConfigException
                raise
            raise unauthorized(self.server) from error
        return {**_HEADERS, token["key"]: token["value"]} if token and token["value"] else dict(_HEADERS)

    def tls(self) -> ssl.SSLContext:
        """Returns a TLS context with the configured certificates.

        Raises BadInputError if the certificates cannot be read.
        """
        configuration = self.configuration
        data = getattr(configuration, "ca_cert_data", None)  # exists since version 37 of the kubernetes package
        try:
            context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=data)
            if configuration.assert_hostname is False:
                context.check_hostname = False
            if not configuration.verify_ssl:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if configuration.cert_file:
                context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
        except (OSError, ValueError) as error:
            raise BadInputError(
                f"server {self.server}: the certificates of the kubeconfig cannot be read: {error}; check them"
            ) from error
        return context

    @property
    def server_hostname(self) -> str | None:
        """The host name that the server's certificate must contain. None means the host name of `server`."""
        name = self.configuration.tls_server_name
        return str(name) if name else None

    @property
    def proxy(self) -> str | None:
        """The proxy's address. None if no proxy is configured, or if no proxy is used for the server."""
        configuration = self.configuration
        if not configuration.proxy:
            return None
        from kubernetes.client.rest import should_bypass_proxies

        exempt = should_bypass_proxies(self.server, configuration.no_proxy or "")
        return None if exempt else str(configuration.proxy)


def missing_package(error: ImportError) -> BadInputError:
    """Returns the error of a program that needs a cluster, without a package of the extra `kubernetes`."""
    return BadInputError(
        f"the Python package {error.name} is missing; in a checkout of stepset's repository, run: pip install"
        " '.[kubernetes]'"
    )


def load_config(
    kubeconfig: str | None = None, context: str | None = None, interface: Interface = "python"
) -> ClientConfig:
    """Reads the address and credentials of an API server.

    Raises BadInputError if the `kubernetes` package is missing or the kubeconfig cannot be used.

    Args:
        kubeconfig: the path of a kubeconfig. Default: the files in the variable KUBECONFIG. If KUBECONFIG is not set,
            the file ~/.kube/config is read. If ~/.kube/config does not exist, the service account of the pod is used.
        context: the name of a context in the kubeconfig; default: the current context.
        interface: the interface of the caller, which determines the names of options in error messages.
    """
    try:
        from kubernetes import client
    except ImportError as error:
        raise missing_package(error) from error
    configuration = client.Configuration()
    return ClientConfig(configuration, Namespace(load_into(configuration, kubeconfig, context, interface)))
