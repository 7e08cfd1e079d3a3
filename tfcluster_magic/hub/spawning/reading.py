"""What the spawner reads and writes beside pods: a namespace, claims, events, a ConfigMap.

Promises JSON as the API has it, through the one asynchronous client that KubeSpawner keeps, and
that what is not there is None. It lists nothing but the events of one object.
Ref: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kubernetes_asyncio.client import ApiException

Object = dict[str, Any]
SECONDS = 5.0
"""How long the API server may take for one answer."""
GONE = 404


class Reader:
    """The API server, as the hub may use it."""

    def __init__(self, api: Any) -> None:
        self._api = api

    async def namespace(self, name: str) -> Object | None:
        """A namespace."""
        return await self._one(self._api.read_namespace, name)

    async def config_map(self, namespace: str, name: str) -> Object | None:
        """A ConfigMap."""
        return await self._one(self._api.read_namespaced_config_map, name, namespace)

    async def pod(self, namespace: str, name: str) -> Object | None:
        """A pod."""
        return await self._one(self._api.read_namespaced_pod, name, namespace)

    async def claim(self, namespace: str, name: str) -> Object | None:
        """A claim."""
        return await self._one(self._api.read_namespaced_persistent_volume_claim, name, namespace)

    async def events(self, namespace: str, kind: str, name: str) -> Sequence[Object]:
        """What happened to one object, as far as the API server remembers: an hour."""
        about = f"involvedObject.kind={kind},involvedObject.name={name}"
        found = await self._one(
            self._api.list_namespaced_event, namespace, field_selector=about, limit=100
        )
        return [] if found is None else list(found["items"])

    async def make_namespace(
        self, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> None:
        """Make a namespace; one that is there already stays as it is."""
        head = {"name": name, "labels": dict(labels), "annotations": dict(annotations)}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": head}
        try:
            await self._api.create_namespace(body, _request_timeout=SECONDS)
        except ApiException as error:
            if error.status != 409:
                raise

    async def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of a namespace, and take away those that are None."""
        body = {"metadata": {"annotations": dict(annotations)}}
        await self._api.patch_namespace(
            name, body, _content_type="application/merge-patch+json", _request_timeout=SECONDS
        )

    async def _one(
        self, ask: Callable[..., Awaitable[Any]], *arguments: str, **more: Any
    ) -> Object | None:
        answer = await ask(*arguments, _preload_content=False, _request_timeout=SECONDS, **more)
        said = await answer.read()
        if answer.status == GONE:
            return None
        if answer.status != 200:
            raise ApiException(status=answer.status, reason=said.decode(errors="replace")[:500])
        found: Object = json.loads(said)
        return found


def words_of(error: ApiException) -> str:
    """What the API server says of a refusal, without HTTP around it."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (KeyError, TypeError, ValueError):
        return str(error.reason or error)
