"""Reads lists page by page. The size of a page in bytes is limited, so the use of memory is limited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stepset.backends.kubernetes.api.answers import Answer
from stepset.backends.kubernetes.api.client import REQUEST_TIMEOUT, Client
from stepset.backends.kubernetes.api.replies import read_reply
from stepset.backends.kubernetes.watch.selectors import Collection
from stepset.errors import InfrastructureError
from stepset.watch.list_watch import Change, ListWatch, decode_list

PAGE_BYTES = 64 * 1024 * 1024
"""The maximum size of a page in bytes. Each object may have 256 KiB of annotations and 1.5 MiB of other fields."""
_WANTED_BYTES = 32 * 1024 * 1024
"""The intended size of a page in bytes. After a page of at most half this size, the next pages contain more objects."""


class PageTooLargeError(InfrastructureError):
    """A page of a list is larger than PAGE_BYTES."""


async def read_page(
    client: Client, collection: Collection, list_watch: ListWatch, received: Callable[[], None] = lambda: None
) -> list[Change]:
    """Requests and processes the next page of a list.

    If this is the last page, returns the changes of the whole list. Otherwise returns an empty list. If the page is
    larger than PAGE_BYTES, this function repeats the request with fewer objects.

    Args:
        client: the client of the server.
        collection: the collection to list.
        list_watch: the state of the list. Its next request must be a list request.
        received: a function that is called when a response begins and when each of its parts arrives.

    Raises:
        RefusedError: the server refuses the request.
        PageTooLargeError: one object is larger than PAGE_BYTES.
        StepsetError: an error of `Client.request`. The server must send each part within REQUEST_TIMEOUT seconds.
    """
    while True:
        try:
            body = await _body(client, collection, list_watch, received)
        except PageTooLargeError:
            if not list_watch.smaller_pages():
                raise
        else:
            page = read_reply(Answer(client.server, 200, "GET", collection.path), body, decode=decode_list).body
            await asyncio.sleep(0)  # let other tasks run after decoding, which may take long
            changes = list_watch.listed(page)
            if not list_watch.listed_once and (factor := _WANTED_BYTES // (len(body) + 1)) > 1:
                list_watch.larger_pages(factor)
            return changes


async def _body(
    client: Client, collection: Collection, list_watch: ListWatch, received: Callable[[], None]
) -> bytearray:
    body, query = bytearray(), {**collection.selectors, **list_watch.next_request().query}
    async with client.stream(collection.path, query, REQUEST_TIMEOUT) as parts:
        received()
        async for part in parts:
            received()
            body += part
            if len(body) > PAGE_BYTES:
                raise PageTooLargeError(f"server {client.server}: an object of {collection.path} is too large")
    return body
