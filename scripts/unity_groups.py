#!/usr/bin/env python3
"""Says which source files can be compiled as one: those that share no private name.

  scripts/unity_groups.py LARGEST a.cc b.cc ...    prints the group of each, "0;1;0"

A file that has a private name which some header declares too stands alone: the header may
come with another file of the group.

Used by cmake/flags.cmake (sanitizer builds) and scripts/tidy.py: most of the time of both goes to the
standard headers, which are then read once per group. What is private to a file is in its anonymous
namespaces and its using-declarations; this reads them by their layout, which clang-format fixes.

SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ["base", "schedule", "traces", "models", "imports", "sim", "search", "exec", "cli", "tests", "bench"]
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
FUNCTION_BODY = re.compile(r"^(?:  .*|)\n", re.MULTILINE)


def private_names(path):
    """Name -> what it stands for, of what other files of a group must not declare differently."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    names = {name: target for target, name in USING.findall(text)}
    for body in ANONYMOUS.findall(text):
        for pattern in DECLARATIONS:
            names.update((name, path) for name in pattern.findall(FUNCTION_BODY.sub("", body)))
    return names


def public_names():
    """What all headers declare, with the namespace that each header opens first."""
    names = set()
    headers = [path for room in ROOMS for path in (ROOT / room).rglob("*.h")]
    for path in headers:
        text = path.read_text(encoding="utf-8")
        for pattern in DECLARATIONS:
            names.update((namespace_of(text), name)
                         for name in pattern.findall(FUNCTION_BODY.sub("", text)))
    return names


def namespace_of(text):
    found = NAMESPACE.search(text)
    return found.group(1) if found else ""


def hides_public(path, names, public):
    """Whether a name that is private to this file is public in its namespace or one around it."""
    parts = namespace_of(pathlib.Path(path).read_text(encoding="utf-8")).split("::")
    around = ["::".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return any((namespace, name) in public for namespace in around
               for name, meaning in names.items() if meaning == path)


def make_groups(paths, largest):
    """Lists of paths: each goes into the first group that has room and no name of its own."""
    groups = []  # (paths, names)
    alone = []
    public = public_names()
    for path in paths:
        names = private_names(path)
        if hides_public(path, names, public):
            alone.append([path])
            continue
        for members, taken in groups:
            if (len(members) < largest
                    and all(taken.get(name, meaning) == meaning for name, meaning in names.items())):
                members.append(path)
                taken.update(names)
                break
        else:
            groups.append(([path], names))
    return [members for members, _ in groups] + alone


def main():
    largest, paths = int(sys.argv[1]), sys.argv[2:]
    group_of = {path: index for index, members in enumerate(make_groups(paths, largest))
                for path in members}
    print(";".join(str(group_of[path]) for path in paths), end="")


if __name__ == "__main__":
    main()
