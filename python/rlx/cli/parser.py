"""The parser of the `rlx` commands: argparse's, extended by suggestions for unknown options."""

from __future__ import annotations

import argparse
from typing import NoReturn

_UNKNOWN = "unrecognized arguments: "


class Parser(argparse.ArgumentParser):
    """A parser whose error messages suggest a similar option for each unknown option."""

    def error(self, message: str) -> NoReturn:
        if message.startswith(_UNKNOWN):
            message += self._meant(message.removeprefix(_UNKNOWN).split(" "))
        super().error(message)

    def _meant(self, words: list[str]) -> str:
        from rlx.support.suggestions import similar

        known = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
        options = dict.fromkeys(word.partition("=")[0] for word in words if word.startswith("-"))
        meant = {option: similar(option.replace("_", "-"), known) for option in options}
        found = [f"{name} for {option}" for option, name in meant.items() if name]
        return f" (did you mean {', '.join(found)}?)" if found else ""
