"""A gRPC server that uses the C++ store of the ml-metadata package. It replaces KFP's metadata-grpc-server.

python mlmd_server.py ADDRESS:PORT SQLITE_FILE
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store as native
from ml_metadata.proto import metadata_store_pb2

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_CREATE = 3  # READWRITE_OPENCREATE


class Methods(grpc.GenericRpcHandler):
    """Passes each request as bytes to a function of the store. The function has the same name as the gRPC method."""

    def __init__(self, store: Any) -> None:
        self._store, self._lock = store, threading.Lock()

    def service(self, handler_call_details: Any) -> Any:
        """Returns the handler of a method, or None if the store has no function with the name of the method."""
        act = getattr(native, handler_call_details.method.rpartition("/")[2], None)
        if act is None:
            print("not implemented:", handler_call_details.method, flush=True)
            return None
        return grpc.unary_unary_rpc_method_handler(self._handler(act), bytes, bytes)

    def _handler(self, act: Callable[..., tuple[bytes, Any, int]]) -> Callable[[bytes, Any], bytes]:
        def handle(request: bytes, context: Any) -> bytes:
            with self._lock:
                reply, message, code = act(self._store, request)
            if code:
                context.abort(_CODES[code], message.decode() if isinstance(message, bytes) else message)
            return reply

        return handle


def main(address: str, file: str) -> None:
    """Serves requests until the process is terminated."""
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = file
    config.sqlite.connection_mode = _CREATE
    options = metadata_store_pb2.MigrationOptions()
    store = native.CreateMetadataStore(config.SerializeToString(), options.SerializeToString())
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((Methods(store),))
    if not server.add_insecure_port(address):
        sys.exit(f"cannot listen on {address}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
