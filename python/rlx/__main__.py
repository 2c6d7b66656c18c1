"""`python -m rlx`: the command `rlx`, for environments whose programs are not on the path."""

import sys

from rlx.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
