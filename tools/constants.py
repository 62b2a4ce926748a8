"""List the constants of Counterpath that do not say why they have their value.

    python tools/constants.py [FOLDER]

A constant is an assignment to an UPPER_CASE name in a module or a class whose value holds a number, be it within a
tuple, a mapping, a call or a calculation. A reason is a comment on its lines, a comment right above it, or a string
right below it. The exit status is 1 if there are constants without one.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "counterpath"
NAME = re.compile(r"_{0,2}[A-Z][A-Z0-9_]*")
SHOWN = 60  # a value that is longer is cut off, so that most lines fit a terminal


@dataclass(frozen=True)
class Constant:
    """A constant with a number in it.

    Attributes:
        file: Where it is.
        line: In which line it begins.
        names: What it is called; several names if several are assigned at once.
        value: Its value as the code has it.
        explained: Whether anything says why it has this value.
    """

    file: Path
    line: int
    names: str
    value: str
    explained: bool


def constants_of(file: Path) -> Iterator[Constant]:
    """The constants of a module and of its classes."""
    text = file.read_text(encoding="utf-8")
    module, comments = ast.parse(text), comment_lines(text)
    bodies = [module.body, *(node.body for node in ast.walk(module) if isinstance(node, ast.ClassDef))]
    for body in bodies:
        for place, statement in enumerate(body):
            names, value = assigned(statement)
            if not names or value is None or not holds_number(value):
                continue
            below = body[place + 1] if place + 1 < len(body) else None
            shown = ast.unparse(value)
            yield Constant(
                file,
                statement.lineno,
                ", ".join(names),
                shown if len(shown) <= SHOWN else shown[: SHOWN - 1] + "…",
                has_comment(statement, comments) or is_string(below),
            )


def comment_lines(text: str) -> dict[int, bool]:
    """The lines with a comment, and whether it is all that is on the line."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {
        token.start[0]: not token.line[: token.start[1]].strip() for token in tokens if token.type == tokenize.COMMENT
    }


def assigned(statement: ast.stmt) -> tuple[list[str], ast.expr | None]:
    """The constants that a statement assigns to, none if it is no such statement, and the value."""
    if isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets, value = [statement.target], statement.value
    else:
        return [], None
    parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [part.id for part in parts if isinstance(part, ast.Name) and NAME.fullmatch(part.id)], value


def holds_number(value: ast.expr) -> bool:
    """Whether there is a number anywhere in a value, but for the code of a lambda and places in a subscript."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float | complex) and not isinstance(value.value, bool)
    if isinstance(value, ast.Lambda | ast.JoinedStr):
        return False
    if isinstance(value, ast.Subscript):
        return holds_number(value.value)
    return any(holds_number(part) for part in _expressions(value))


def _expressions(value: ast.AST) -> Iterator[ast.expr]:
    for part in ast.iter_child_nodes(value):
        if isinstance(part, ast.expr):
            yield part
        elif isinstance(part, ast.keyword):
            yield part.value


def has_comment(statement: ast.stmt, comments: dict[int, bool]) -> bool:
    """Whether there is a comment on one of the lines of a statement, or alone on the line above it."""
    own = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    return any(line in comments for line in own) or comments.get(statement.lineno - 1, False)


def is_string(statement: ast.stmt | None) -> bool:
    """Whether a statement is a string and nothing else."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def main(arguments: Sequence[str]) -> int:
    """Print the constants without a reason and how many there are, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=SOURCE, help="where to look (default: src/counterpath)")
    folder = parser.parse_args(arguments).folder
    constants = [constant for file in sorted(folder.rglob("*.py")) for constant in constants_of(file)]
    bare = [constant for constant in constants if not constant.explained]
    for constant in bare:
        print(f"{constant.file.relative_to(folder)}:{constant.line} {constant.names} = {constant.value}")
    print(f"{len(bare)} of {len(constants)} constants do not say why they have their value")
    return 1 if bare else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
