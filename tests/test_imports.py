"""Tests of the house: no circle of imports, and no use of another module's private names.

Read with `ast`, so that nothing is imported; imports for type checking and inside functions count like all others.
"""

import ast

from tests.test_house import ALIASES, TREES, imports_of

BARE = {room: alias for alias, room in ALIASES.items()}
# What NamedTuples have, and is public.
OF_TUPLES = {"_replace", "_asdict", "_fields", "_make", "_field_defaults"}


def module_of(name):
    """Return the module that a file is imported as."""
    parts = name.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join([BARE.get(parts[0], parts[0]), *parts[1:]])


MODULES = {module_of(name): name for name in TREES if not name.startswith("benchmarks/")}
FOLDERS = [module for module, name in MODULES.items() if name.endswith("/__init__.py") and module != "tsr_gym"]


def imported_by(module):
    """Return the modules of the package that a module imports."""
    found = set()
    for imported, _ in imports_of(MODULES[module]):
        while imported and imported not in MODULES:
            imported = imported.rpartition(".")[0]
        found.add(imported)
    return found - {"", module}


IMPORTS = {module: imported_by(module) for module in MODULES}


def on_a_circle(imports):
    """Return the modules that remain after removing, repeatedly, each module that imports no remaining one."""
    left = dict(imports)
    while ends := [module for module, needed in left.items() if not needed & left.keys()]:
        for module in ends:
            del left[module]
    # And, from the other end, each module that no remaining module imports.
    while starts := left.keys() - set().union(*left.values()):
        for module in starts:
            del left[module]
    return sorted(left)


def test_there_are_modules_that_import_each_other_in_one_direction():
    assert IMPORTS["tsr_gym.stack"] >= {"tsr_gym.state_env", "tsr_gym.snapshots"}
    assert IMPORTS["tsr_gym.wrappers.tree_search"] >= {"tsr_gym.tree", "tsr_gym.wrappers.grow"}
    assert on_a_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]


def test_no_modules_import_each_other_in_a_circle():
    assert on_a_circle(IMPORTS) == []


def test_no_folder_imports_what_imports_it():
    circles = {}
    for folder in FOLDERS:
        merged = {}
        for module, needed in IMPORTS.items():
            inside = {folder if f"{name}.".startswith(f"{folder}.") else name for name in needed}
            merged.setdefault(folder if f"{module}.".startswith(f"{folder}.") else module, set()).update(inside)
        merged[folder].discard(folder)
        circles[folder] = on_a_circle(merged)
    assert not any(circles.values()), circles


def is_private(name):
    return name.startswith("_") and not name.endswith("__") and name not in OF_TUPLES and name != "_"


def of_itself(value):
    """Return whether an expression is the object or class whose method uses it."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def defined_in(tree):
    """Return the private names that a module gives to attributes, methods and what stands at its top."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and of_itself(node.value):
            found.add(node.attr)
        for line in node.body if isinstance(node, ast.Module | ast.ClassDef) else ():
            if isinstance(line, ast.Assign | ast.AnnAssign):
                targets = line.targets if isinstance(line, ast.Assign) else [line.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if is_private(name)}


DEFINED = {name: defined_in(TREES[name]) for name in MODULES.values()}
OURS = set().union(*DEFINED.values())


def private_names_of_others(name):
    """Yield what a file uses of another module's private names; those of libraries are not ours to judge."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if is_private(alias.name) and f"{node.module}.{alias.name}" not in MODULES:
                    yield f"{name}:{node.lineno}: {node.module} keeps {alias.name} to itself"
        elif isinstance(node, ast.Attribute) and node.attr in OURS - DEFINED[name] and not of_itself(node.value):
            yield f"{name}:{node.lineno}: {ast.unparse(node)} belongs to another module"


def test_a_module_uses_no_private_names_of_another():
    assert [use for name in MODULES.values() for use in private_names_of_others(name)] == []
