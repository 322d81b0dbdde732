"""The tool in this process: words of a command line in, what it prints out.

A document that was made here and is named nowhere (a Plan, a Workload of a trace) lies in a temporary folder while the tool
reads it. The folder is taken out of what the tool says, so that messages and rows name the document as it is called here.

SPDX-License-Identifier: Apache-2.0
"""

import json
import os
import tempfile
from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple, Union

from dovetail.lib import _core

InputError = _core.InputError
DeviceError = _core.DeviceError
InternalError = _core.InternalError


@dataclass(frozen=True)
class Document:
    """A file that the tool is to read, by the name that it has in messages and the text in it."""
    name: str
    text: str


Word = Union[str, Document]
Words = Sequence[Word]


def call(words: Words) -> str:
    """What `dovetail WORDS...` prints, without starting a process.

    Raises InputError, a ValueError, where the command line would end with exit code 2, DeviceError for 3 and InternalError for 70.
    """
    if any(isinstance(word, Document) for word in words):
        with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
            return _call_in(folder, words)
    return _core.answer([str(word) for word in words])


def made_file(words: Words, option: str, name: str) -> Tuple[str, str]:
    """What the command writes into the file of this option, and what it prints."""
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        out = os.path.join(folder, "out")
        os.mkdir(out)
        path = os.path.join(out, name)
        printed = _call_in(folder, [*words, option, path])
        with open(path, encoding="utf-8") as file:
            return _without(folder, file.read()), printed


def _call_in(folder: str, words: Words) -> str:
    texts: Dict[str, str] = {}
    given = [os.path.join(folder, _own_name(word, texts)) if isinstance(word, Document) else str(word) for word in words]
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    try:
        return _without(folder, _core.answer(given))
    except (InputError, DeviceError, InternalError) as error:
        raise type(error)(_without(folder, str(error))) from None


def _without(folder: str, text: str) -> str:
    return text.replace(os.path.join(folder, "out") + os.sep, "").replace(folder + os.sep, "")


def _own_name(document: Document, texts: Dict[str, str]) -> str:
    """The document's name, and it in `texts`; "plan-2.json" where that is the name of another one."""
    stem, ending = os.path.splitext(document.name)
    name, number = document.name, 1
    while texts.setdefault(name, document.text) != document.text:
        number += 1
        name = f"{stem}-{number}{ending}"
    return name


def document_of(words: Words) -> Dict[str, Any]:
    """The JSON that a command prints with --json."""
    found: Dict[str, Any] = json.loads(call([*words, "--json"]))
    return found


def flags(**options: Any) -> List[str]:
    """`--KEY VALUE` for each option that is not None, False or empty; of True the flag alone, of a list one for each item."""
    words: List[str] = []
    for key, value in options.items():
        name = "--" + key.strip("_").replace("_", "-")
        if value is None or value is False or value == "" or value == []:
            continue
        if value is True:
            words.append(name)
        elif isinstance(value, (list, tuple)):
            for item in value:
                words += [name, str(item)]
        else:
            words += [name, str(value)]
    return words
