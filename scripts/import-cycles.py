#!/usr/bin/env python3
"""Fails if modules of a crate import each other in a cycle.

A module imports another if a path in it (`crate::`, `super::`, `self::`, or the name of a child)
leads there, in a `use` or elsewhere, outside `#[cfg(test)]`. A re-export leads to the module that
defines the item. Without arguments, all crates of the workspace are examined.
"""

import re
import sys
from pathlib import Path

MAX = 1


def plain(text):
    """Blanks comments, strings and characters."""
    return re.sub(
        r'//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\\\'])\'',
        " ",
        text,
        flags=re.S,
    )


def without_tests(text):
    """Removes items under `#[cfg(test)]`; returns the rest and the modules in files of their own."""
    files = set()
    while found := re.search(r"#\[cfg\((?:all\()?test\b[^\]]*\]", text):
        depth, at = 0, found.end()
        while at < len(text):
            depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(text[at], 0)
            at += 1
            if depth == 0 and text[at - 1] in ";}":
                break
        files.update(re.findall(r"\bmod (\w+)\s*;", text[found.end() : at]))
        text = text[: found.start()] + text[at:]
    return text, files


def leaves(tree):
    """Yields the paths of a use tree, such as `a::{b, c::d as e}`, as lists of words."""
    head, brace, rest = tree.partition("{")
    words = [word for word in head.split(" as ")[0].replace("::", " ").split() if word != "*"]
    if not brace:
        yield words
        return
    depth, start, inner = 0, 0, rest.rpartition("}")[0] + ","
    for at, letter in enumerate(inner):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if inner[start:at].strip():
                for leaf in leaves(inner[start:at].strip()):
                    yield words + (leaf if leaf != ["self"] else [])
            start = at + 1


def modules(source):
    """Returns the modules of a crate by path, as tuples of names, with their texts."""
    root = next(path for name in ("lib.rs", "main.rs") if (path := source / name).is_file())
    found, waiting = {}, [((), root)]
    while waiting:
        module, path = waiting.pop()
        found[module], tests = without_tests(plain(path.read_text()))
        folder = path.parent if path.name in ("mod.rs", "lib.rs", "main.rs") else path.with_suffix("")
        for child in re.findall(r"\bmod (\w+)\s*;", found[module]):
            files = [folder / f"{child}.rs", folder / child / "mod.rs"]
            waiting += [((*module, child), file) for file in files if file.is_file()]
    return found


def follow(module, path, known):
    """Returns the module that `path` leads to from `module`, and what remains of the path."""
    if path[:1] == ["crate"]:
        module, path = (), path[1:]
    elif path[:1] in (["self"], ["super"]):
        while path[:1] in (["self"], ["super"]):
            module, path = (module[:-1] if path[0] == "super" else module), path[1:]
    elif not path or (*module, path[0]) not in known:
        return None, []
    while path and (*module, path[0]) in known:
        module, path = (*module, path[0]), path[1:]
    return module, path


def imports(module, text, known, uses):
    """Returns the modules that define what `module` uses."""
    code = re.sub(r"\buse\s+[^;]+;", " ", text)
    paths = [path.split("::") for path in re.findall(r"(?<![\w:$])\w+(?:::\w+)+", code)]
    # A name that is only re-exported is not used.
    paths += [
        path for path, public in uses[module] if not public or re.search(rf"\b{path[-1]}\b", code)
    ]
    targets = set()
    for path in paths:
        at, rest = follow(module, path, known)
        for _ in range(8):
            exports = [path for path, _ in uses[at] if path[-1:] == rest[:1]] if at is not None and rest else []
            further = [step for path in exports if (step := follow(at, path, known))[0] is not None]
            if not further or further[0][0] == at:
                break
            at, rest = further[0]
        if at is not None:
            targets.add(at)
    return targets - {module}


def imports_of(crate):
    """Returns the modules of a crate, each with the modules that it imports."""
    known = modules(crate / "src")
    uses = {
        module: [
            (path, bool(public))
            for public, use in re.findall(r"\b(pub\b[^;{]*?)?\buse\s+([^;]+);", text)
            for path in leaves(use)
        ]
        for module, text in known.items()
    }
    return {module: imports(module, text, known, uses) for module, text in known.items()}


def components(graph):
    """Returns the strongly connected components (Tarjan)."""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph[node]:
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            found.append(set(stack[stack.index(node) :]))
            del stack[stack.index(node) :]

    for node in graph:
        if node not in order:
            visit(node)
    return found


def cycle(graph, component):
    """Returns a cycle: the longest of the shortest ones through each module."""
    best = []
    for start in sorted(component):
        before, waiting = {}, [start]
        while waiting and start not in before:
            node = waiting.pop(0)
            for other in sorted(graph[node] & component - before.keys()):
                before[other] = node
                waiting.append(other)
        path, node = [start], before[start]
        while node != start:
            path, node = [node, *path], before[node]
        best = max(best, [start, *path], key=len)
    return best


def name(module):
    return "::".join(("crate", *module))


def main():
    root = Path(__file__).resolve().parent.parent
    crates = [Path(given) for given in sys.argv[1:]] or sorted(found.parent for found in root.glob("*/*/Cargo.toml")) + [root / "cli"]
    found = False
    for crate in crates:
        graph = imports_of(crate)
        for component in components(graph):
            if len(component) > MAX:
                found = True
                print(f"{crate.name}: {len(component)} modules import each other; at most {MAX} may:")
                print("  " + ", ".join(sorted(map(name, component))))
                print("  one cycle: " + " -> ".join(map(name, cycle(graph, component))))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
