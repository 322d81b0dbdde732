#!/usr/bin/env python3
"""Says which source files can be compiled as one: those that share no private name.

  scripts/unity_groups.py LARGEST a.cc b.cc ...    prints the group of each, "0;1;0"

Two files go together where neither has a private name that the other has too, that a header of the
other declares, or that the other calls without saying whose it is.

Used by cmake/flags.cmake (sanitizer builds) and scripts/tidy.py: most of the time of both goes to the
standard headers, which are then read once per group. What is private to a file is in its anonymous
namespaces and its using-declarations; this reads them by their layout, which clang-format fixes.

SPDX-License-Identifier: Apache-2.0
"""

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.MULTILINE)
ANONYMOUS = re.compile(r"^namespace \{\n(.*?)^\}  // namespace\n", re.MULTILINE | re.DOTALL)
# What a file declares at the start of a line: types, aliases, constants, functions.
DECLARATIONS = [
    re.compile(r"^(?:class|struct|enum class|enum|union|concept) (\w+)", re.MULTILINE),
    re.compile(r"^using (\w+) =", re.MULTILINE),
    re.compile(r"^(?:static |inline |thread_local )*(?:constexpr|const) [^()={;]*?(\w+)(?:\[\w*\])*"
               r"(?: =|\{|;)", re.MULTILINE),
    re.compile(r"^(?!using|return|namespace|//|#|\}| )[^(\n;={]*?[ &*](\w+)\(", re.MULTILINE),
]
USING = re.compile(r"^using ((?:\w*::)*(\w+));", re.MULTILINE)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
CALL = re.compile(r"(?<![\w.:>])(\w+)\(")
FUNCTION_BODY = re.compile(r"^(?:  .*|)\n", re.MULTILINE)


def private_names(path):
    """Name -> what it stands for, of what other files of a group must not declare differently."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    names = {name: target for target, name in USING.findall(text)}
    for body in ANONYMOUS.findall(text):
        for pattern in DECLARATIONS:
            names.update((name, path) for name in pattern.findall(FUNCTION_BODY.sub("", body)))
    return names


@functools.lru_cache(maxsize=None)
def public_names(path):
    """What one file declares at namespace level, as (the namespace it opens first, name)."""
    text = path.read_text(encoding="utf-8")
    return frozenset((namespace_of(text), name) for pattern in DECLARATIONS
                     for name in pattern.findall(FUNCTION_BODY.sub("", text)))


@functools.lru_cache(maxsize=None)
def includes_of(path):
    """The headers of this project that a file includes itself."""
    names = INCLUDE.findall(path.read_text(encoding="utf-8"))
    found = (next((folder / name for folder in (ROOT, path.parent) if (folder / name).is_file()), None) for name in names)
    return [header for header in found if header]


def headers_of(path):
    """The headers of this project that a file includes, itself or through others."""
    found, left = set(), [path]
    while left:
        for header in includes_of(left.pop()):
            if header not in found:
                found.add(header)
                left.append(header)
    return frozenset(found)


def namespace_of(text):
    found = NAMESPACE.search(text)
    return found.group(1) if found else ""


class File:
    """What matters of one source file: names -> what they stand for, and what is in its way."""

    def __init__(self, path):
        self.path = path
        absolute = (pathlib.Path.cwd() / path).resolve()
        text = absolute.read_text(encoding="utf-8")
        self.names = private_names(absolute)
        self.calls = set(CALL.findall(text)) - self.names.keys()
        self.headers = headers_of(absolute)
        parts = namespace_of(text).split("::")
        around = ["::".join(parts[:count]) for count in range(1, len(parts) + 1)]
        # A header that declares one of these would mean something else behind this file.
        self.hides = {(namespace, name) for namespace in around
                      for name, meaning in self.names.items() if meaning == absolute}


class Group:
    """Files that can be compiled as one."""

    def __init__(self):
        self.paths, self.names, self.calls = [], {}, set()
        self.hides, self.public, self.headers = set(), set(), set()

    def takes(self, file):
        if any(self.names.get(name, meaning) != meaning for name, meaning in file.names.items()):
            return False
        if self.names.keys() & file.calls or file.names.keys() & self.calls:
            return False
        fresh = file.headers - self.headers
        return (not any(self.hides & public_names(header) for header in fresh)
                and not file.hides & self.public)

    def add(self, file):
        self.paths.append(file.path)
        self.names.update(file.names)
        self.calls |= file.calls
        self.hides |= file.hides
        for header in file.headers - self.headers:
            self.public |= public_names(header)
        self.headers |= file.headers


def make_groups(paths, largest):
    """Lists of paths: each goes into the smallest group that takes it."""
    files = [File(path) for path in paths]
    groups = [Group() for _ in range(-(-len(files) // largest))]
    for file in files:
        open_to_it = [group for group in groups if len(group.paths) < largest and group.takes(file)]
        if not open_to_it:
            open_to_it = [Group()]
            groups += open_to_it
        min(open_to_it, key=lambda group: len(group.paths)).add(file)
    return [group.paths for group in groups if group.paths]


def main():
    largest, paths = int(sys.argv[1]), sys.argv[2:]
    generated = [path for path in paths if not pathlib.Path(path).exists()]  # the build will
    groups = make_groups([path for path in paths if path not in generated], largest)
    groups += [[path] for path in generated]
    group_of = {path: index for index, members in enumerate(groups) for path in members}
    print(";".join(str(group_of[path]) for path in paths), end="")


if __name__ == "__main__":
    main()
