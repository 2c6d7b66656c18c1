"""Serve a language model with OpenAI's HTTP interface, and a chat page for browsers at /.

The interface is /v1/models, /v1/completions, /v1/chat/completions, /v1/embeddings, /health and /metrics. The address is
printed on standard error when the server is ready. An interrupt (Ctrl-C) ends it after running requests, a second one at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys

from rlx.cli.display import Steps
from rlx.cli.generation import add_model_options, load_model
from rlx.cli.streams import say

_KEY_VARIABLE = "RLX_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="HOST", help="the address to listen on (default: this machine only)"
    )
    parser.add_argument("--port", type=int, default=8080, metavar="PORT", help="the port; 0 takes a free one")
    parser.add_argument(
        "--api-key",
        action="append",
        default=[],
        metavar="KEY",
        help=f"a key that clients must send; also read from the variable {_KEY_VARIABLE}, which other users do not see",
    )
    parser.add_argument("--parallel", type=int, default=4, metavar="N", help="requests that are computed at once (4)")
    parser.add_argument(
        "--queue", type=int, default=64, metavar="N", help="requests that wait; others are refused (64)"
    )
    parser.add_argument("--alias", metavar="NAME", help="the name of the model for clients (default: that of the file)")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="SECONDS", help="the largest time for a request (600)"
    )
    parser.add_argument(
        "--body-limit", type=int, default=4 << 20, metavar="BYTES", help="the largest size of a request (4 MiB)"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name that clients without a key may use",
    )
    parser.add_argument(
        "--cors", action="append", default=[], metavar="ORIGIN", help="an origin whose web pages may use the server"
    )
    parser.add_argument("--quiet", action="store_true", help="do not print a line for each request")


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
    from rlx.serve.settings import ServerSettings

    variable = os.environ.get(_KEY_VARIABLE)
    settings = {
        "alias": arguments.alias,
        "api_keys": [*arguments.api_key, *([variable] if variable else [])],
        "parallel": arguments.parallel,
        "queue": arguments.queue,
        "timeout": arguments.timeout,
        "body_limit": arguments.body_limit,
        "hosts": arguments.allow_host,
        "cors": arguments.cors,
    }
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
