"""The routes of a server. This module needs Starlette."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlx.serve.chat import answer, chat_request
from rlx.serve.completions import complete, completion_request
from rlx.serve.embeddings import embed, embedding_request
from rlx.serve.guard import AccessGuard, RequestRecorder, error_response
from rlx.serve.job_response import JobResponse
from rlx.serve.json_text import json_bytes, parse_object
from rlx.serve.metrics import CONTENT_TYPE
from rlx.serve.model_service import ModelService, unknown_model
from rlx.serve.page import PAGE, PAGE_HEADERS
from rlx.serve.request_body import BodyReader
from rlx.serve.request_error import RequestError
from rlx.serve.request_fields import RequestFields
from rlx.serve.work_queue import Job

if TYPE_CHECKING:
    from rlx.llm import LLM
    from rlx.serve.settings import ServerSettings

_Work = Callable[[Job], Generator[bytes]]
_Reader = Callable[[RequestFields, ModelService], tuple[_Work, bool]]


def routes_of(model: LLM, settings: ServerSettings) -> Starlette:
    """Return the application for a model. Its `state` has the `ModelService` and the `RequestMemory`."""
    service = ModelService(model, settings)
    bodies = BodyReader(settings.body_limit, settings.body_timeout)
    routes = [
        Route("/", _page, methods=["GET"]),
        Route("/health", partial(_health, service=service), methods=["GET"]),
        Route("/metrics", partial(_metrics, service=service), methods=["GET"]),
        Route("/v1/models", partial(_models, service=service), methods=["GET"]),
        Route("/v1/models/{name:path}", partial(_model, service=service), methods=["GET"]),
        Route("/v1/completions", _computed(service, bodies, _completions), methods=["POST"]),
        Route("/v1/chat/completions", _computed(service, bodies, _chats), methods=["POST"]),
        Route("/v1/embeddings", _computed(service, bodies, _embeddings), methods=["POST"]),
    ]
    middleware = [Middleware(RequestRecorder, metrics=service.metrics)]
    if settings.cors:
        # OpenAI's client sends headers of its own, such as X-Stainless-Lang, and later versions may send others.
        allowed: dict[str, Any] = {"allow_methods": ["GET", "POST"], "allow_headers": ["*"]}
        middleware.append(Middleware(CORSMiddleware, allow_origins=list(settings.cors), **allowed))
    middleware.append(Middleware(AccessGuard, api_keys=settings.api_keys, hosts=settings.hosts))

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.queue.open()
        yield
        service.queue.stop()

    handlers: Any = {RequestError: _on_error, HTTPException: _on_http_error}
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.service = service
    app.state.memory = bodies.memory
    return app


def _completions(fields: RequestFields, service: ModelService) -> tuple[_Work, bool]:
    request = completion_request(fields, service)
    return partial(complete, request, service), request.sampling.is_stream


def _chats(fields: RequestFields, service: ModelService) -> tuple[_Work, bool]:
    request = chat_request(fields, service)
    return partial(answer, request, service), request.sampling.is_stream


def _embeddings(fields: RequestFields, service: ModelService) -> tuple[_Work, bool]:
    return partial(embed, embedding_request(fields, service), service), False


def _computed(service: ModelService, bodies: BodyReader, reader: _Reader) -> Callable[[Request], Awaitable[Any]]:
    """Return the endpoint of requests that a job computes."""

    def parse(body: bytes) -> tuple[tuple[_Work, bool], int]:
        value, size = parse_object(body)
        return reader(RequestFields(value), service), size

    async def endpoint(request: Request) -> JobResponse:
        (work, is_stream), lease = await bodies.read(request, parse)
        job = Job(work, on_end=lease.release)
        return JobResponse(service.queue, job, service.settings.timeout, is_stream=is_stream)

    return endpoint


async def _page(_: Request) -> Response:
    return Response(PAGE, headers=PAGE_HEADERS, media_type="text/html; charset=utf-8")


async def _health(_: Request, service: ModelService) -> Response:
    is_closed = service.queue.is_closed
    body = {"status": "shutting down" if is_closed else "ok"}
    return Response(json_bytes(body), 503 if is_closed else 200, media_type="application/json")


async def _metrics(_: Request, service: ModelService) -> Response:
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def _described(service: ModelService) -> dict[str, Any]:
    return {"id": service.name, "object": "model", "created": service.created, "owned_by": "rlx"}


async def _models(_: Request, service: ModelService) -> Response:
    return Response(json_bytes({"object": "list", "data": [_described(service)]}), media_type="application/json")


async def _model(request: Request, service: ModelService) -> Response:
    name = request.path_params["name"]
    if not service.has_model(name):
        raise unknown_model(name)
    return Response(json_bytes(_described(service)), media_type="application/json")


async def _on_error(_: Request, error: RequestError) -> Response:
    return error_response(error)


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    """Return the answer for a path or a method that does not exist."""
    method, path = request.method[:20], request.url.path[:200]
    headers = dict(error.headers or {})
    if error.status_code == 405:
        hint = "(HINT: Perhaps you meant to use a different HTTP method?)"
        message = f"Not allowed to {method} on {path}. {hint}"
        return error_response(RequestError(405, message, code="method_not_supported", headers=headers))
    return error_response(RequestError(error.status_code, f"Invalid URL ({method} {path})", headers=headers))
