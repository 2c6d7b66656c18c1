"""Run a program from `rlx compile` or `Program.save` on given arrays, and print the outputs. It needs no compiler.

Arrays are written as NAME=@FILE.npy, NAME=1x4xf32=0 (all elements) or NAME=1x4xf32=1,2,3,4.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rlx.cli import heed_interrupts
from rlx.cli.exit_codes import exit_code
from rlx.cli.parser import Parser
from rlx.cli.run_arrays import add_run_arguments, check_repeat, entry_of, run_stored
from rlx.cli.streams import flush
from rlx.version import __version__

# The command `rlx-run` is a part of rlx-deploy. `tools/deploy_wheel.py` lists the modules that it imports later.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: see `exit_code`."""
    return exit_code("rlx-run", _run, argv)


def _run(argv: Sequence[str]) -> int:
    parser = Parser(prog="rlx-run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"rlx-run {__version__}")
    parser.add_argument("file", metavar="FILE", help="a compiled program (.rlxa)")
    add_run_arguments(parser)
    parser.add_argument("--device", metavar="NAME", help="run the program of the file for this device, such as cpu")
    arguments = parser.parse_intermixed_args(argv)
    heed_interrupts()
    check_repeat(arguments)
    return _run_file(arguments)


def _run_file(arguments: argparse.Namespace) -> int:
    from rlx.support.files import inputs_protected
    from rlx.targets.artifacts.archive import Archive

    with inputs_protected():
        archive = Archive.load(arguments.file, expected_sha256=arguments.verify)
        code = run_stored(entry_of(archive, arguments), arguments)
    flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
