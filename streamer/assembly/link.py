"""Open the link to a verifier elsewhere, for Models whose cloud is a ws:// address."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from streamer.assembly.models import Models, PromiseWarning, warn_of_cloud
from streamer.config import Config
from streamer.core.link.backoff import Patience
from streamer.core.link.edge_turn import DecodingTerms

if TYPE_CHECKING:
    from streamer.model.checkpoint.card import ModelCard
    from streamer.net.link.client import RemoteCloud

KEY = "STREAMER_CLOUD_KEY"
SETTLE_S = 2.0  # for the first connection: most take less


@asynccontextmanager
async def background() -> AsyncIterator[TaskGroup]:
    """A task group beside a describer, cancelled at its end; errors come out as they are."""
    failure: BaseException | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except BaseException as error:
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def open_remote(models: Models, group: TaskGroup) -> RemoteCloud:
    """A link to the verifier, kept by a task of `group`. Raises ModelError where it refuses us."""
    from streamer.model.checkpoint.weights import ModelError
    from streamer.net.link.client import RemoteCloud
    from streamer.net.link.dial import VerifierAddress
    from streamer.net.service.admission import KEY_CHARACTERS

    config = models.config
    first = models.first
    key = config.cloud_key or os.environ.get(KEY)
    if key and not KEY_CHARACTERS.fullmatch(key):
        told = f"the key in cloud_key or {KEY} holds characters that no key has; check it"
        raise ModelError(config.cloud, told)
    vocabulary = first.vocabulary
    plan = models.plan
    goes_on = plan.mode == "gated" or (plan.mode == "exact" and plan.degrade)
    patience = Patience(plan.verify_budget_s, goes_on)
    is_eager = config.cloud_audio == "eager"
    verifier = VerifierAddress(config.cloud, key, _tls(config), is_eager, patience)
    terms = DecodingTerms(
        vocabulary.fingerprint,
        first.card.language,
        vocabulary.num_ids,
        plan.rules,
        config.sampling(),
        runs_on=plan.mode == "cloud",
        vocabulary=vocabulary,
        phrases=first.card.phrases,
    )
    link = RemoteCloud(
        verifier, terms, time.perf_counter, on_model=lambda model: _doubt(config, first.card, model)
    )
    group.start_soon(link.run)
    await link.settled(SETTLE_S)
    if link.presence.lost is not None:
        raise ModelError(link.name, link.trouble)
    return link


def _doubt(config: Config, card: ModelCard, fingerprint: str) -> None:
    """A warning, never an error: that would end the link's task, which all turns need."""
    from streamer.net.service.notices import notice

    try:
        warn_of_cloud(config, card, fingerprint)
    except PromiseWarning as doubt:
        notice(str(doubt))


def _tls(config: Config) -> ssl.SSLContext | None:
    """The TLS context of a wss:// address. Raises ModelError for an unreadable certificate."""
    from streamer.model.checkpoint.weights import ModelError

    if not config.cloud.startswith("wss://"):
        return None
    try:
        return ssl.create_default_context(cafile=config.cloud_ca)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "strerror", None) or error
        told = f"cloud_ca {config.cloud_ca!r} cannot be read ({why}); give a PEM file"
        raise ModelError(config.cloud, told) from None
