"""callgraph.py - who calls whom, by name; a call that comes back to itself must say what bounds it."""
import os
import re

from tree import Problem, data_lines

TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"')
FUNCTION = re.compile(r"^([A-Za-z_][^\n;{}=]*?(?:\n[ \t]+[^\n;{}]*)*)\n?\{\n(.*?)^\}", re.M | re.S)
CALL = re.compile(r"(?<!->)(?<!\.)\b([a-z_]\w*)\s*\(")  # a call through a table is not seen


def call_graph(tree):
    """{(file, function): [(file, function)...]}; a static function is found in its own file first."""
    bodies, public = {}, {}
    for path in tree.match("src", "sdk", ext=("c", "h", "cc")):
        for m in FUNCTION.finditer(TEXT.sub('""', tree.code(path))):
            head, name = m.group(1), re.search(r"(\w+)\(", m.group(1))
            if name:
                key = (path, name.group(1))
                bodies[key] = set(CALL.findall(m.group(2)))
                if "static" not in head.split("(")[0]:
                    public[name.group(1)] = key
    return {key: [(key[0], c) if (key[0], c) in bodies else public[c] for c in sorted(calls)
                  if (key[0], c) in bodies or c in public] for key, calls in bodies.items()}


def cycles(graph):
    """The strongly connected parts that can come back to themselves (Tarjan, without recursion)."""
    index, low, stack, on_stack = {}, {}, [], set()
    for root in graph:
        work = [(root, iter(graph[root]))] if root not in index else []
        while work:
            node, rest = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            step = next((n for n in rest if n not in index or n in on_stack), None)
            if step is not None and step not in index:
                work.append((step, iter(graph[step])))
            elif step is not None:
                low[node] = min(low[node], index[step])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = stack[stack.index(node):]
                    del stack[stack.index(node):]
                    on_stack.difference_update(part)
                    if len(part) > 1 or node in graph[node]:
                        yield part


def recursion(tree, data):
    """No function calls itself, near or far, unless recursion.txt says what bounds its depth."""
    listed = {(words[0], w) for _, words in data_lines(os.path.join(data, "recursion.txt")) for w in words[1:]}
    found = set()
    for part in cycles(call_graph(tree)):
        found.update(part)
        for path, name in sorted(part):
            if (path, name) not in listed:
                yield Problem(f"{path} {name}", f"{path}: {name}() can call itself ({', '.join(sorted(n for _, n in part))}): "
                                                "use a loop, or say in tests/check/recursion.txt what bounds it")
    for path, name in sorted(listed - found):
        yield Problem(f"{path} {name}", f"recursion.txt: {name}() of {path} does not call itself any more: delete it")
