"""Serve a language model with OpenAI's HTTP interface, and a chat page for browsers at /.

The interface is /v1/models, /v1/completions, /v1/chat/completions, /v1/embeddings, /health and /metrics. The address is
printed on standard error when the server is ready. An interrupt (Ctrl-C) ends it after running requests, a second one at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Any

from rlx.cli.display import Steps
from rlx.cli.generation import add_model_options, load_model
from rlx.cli.options import add_options
from rlx.cli.streams import say
from rlx.support.options import option_help


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    from rlx.serve.settings import ServerSettings

    add_model_options(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="HOST", help="the address to listen on (default: this machine only)"
    )
    parser.add_argument("--port", type=int, default=8080, metavar="PORT", help="the port; 0 takes a free one")
    add_options(parser, *_flagged(), of=ServerSettings)
    parser.add_argument("--quiet", action="store_true", help="do not print a line for each request")


def _flagged() -> list[str]:
    """Return the names of the settings that are options of the command."""
    from rlx.serve.settings import ServerSettings

    return [name for name, (_, option) in option_help(ServerSettings).items() if option.flag]


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.support.errors import Error
    from rlx.support.packages import import_package

    if not 0 <= arguments.port <= 65535:
        raise Error(f"--port must be from 0 to 65535, got {arguments.port}")
    for name in ("starlette", "uvicorn"):
        import_package(name, "rlx serve")
    from rlx.serve import application
    from rlx.serve.server import bound_socket, is_loopback, run_server, url_of
    from rlx.serve.settings import KEY_VARIABLE, ServerSettings

    settings: Any = {name: getattr(arguments, name) for name in _flagged()}
    if variable := os.environ.get(KEY_VARIABLE):
        settings["api_keys"] = [*settings["api_keys"], variable]
    ServerSettings(**settings)  # mistakes are reported before the model is loaded
    with bound_socket(arguments.host, arguments.port) as bound:
        if not is_loopback(bound) and not settings["api_keys"]:
            say(f"rlx: warning: {arguments.host} is open to other machines, without a key", stream=sys.stderr)
        steps = Steps()
        with steps("load"):
            model = load_model(arguments, parallel=arguments.parallel)
        with model:
            with steps("compile"):
                model.generate([0], max_tokens=2, ignore_eos=True)
            app = application(model, **settings)
            run_server(
                app,
                bound,
                on_ready=lambda: say(f"serving {app.state.service.name} at {url_of(bound)}", stream=sys.stderr),
                log_level=logging.WARNING if arguments.quiet else logging.INFO,
            )
    return 0
