"""jaxtyping's checks of types and shapes in tests, at less cost. Importing this before the package is all.

jaxtyping binds the arguments of every call by `inspect` to remember the sizes of axes, checks the parameters before the
call and once more with the result, and makes its checkers anew wherever a function is defined inside another. Here
sizes are remembered where an annotation has a shape, parameters are checked once, the result once, by the same sizes,
and a checker is made once for a piece of code. What does not pass is handed to jaxtyping, which says why.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple, get_args

import jaxtyping
from jaxtyping import AbstractArray, TypeCheckError, config
from jaxtyping._decorator import _destring_annotation, _make_fn_with_signature
from jaxtyping._storage import pop_shape_memo, push_shape_memo

slowly = jaxtyping.jaxtyped


class Checks(NamedTuple):
    """Of one piece of code."""

    parameters: Callable[..., None]
    result: Callable[..., Any] | None
    shapes: bool


known: dict[int, tuple[CodeType, Checks]] = {}
"""By the code's identity: methods that dataclasses make are equal where their fields have the same names."""


def has_shape(annotation: Any) -> bool:
    if isinstance(annotation, list):
        return any(map(has_shape, annotation))
    own = inspect.isclass(annotation) and issubclass(annotation, AbstractArray)
    return own or any(map(has_shape, get_args(annotation)))


def checks_of(function: Any, typechecker: Callable[..., Any]) -> Checks:
    """As `jaxtyped` makes them, but for the result alone in place of all once more."""
    signature = inspect.signature(function)
    annotations = {
        name: _destring_annotation(each.annotation, function.__globals__) for name, each in signature.parameters.items()
    }
    returned = _destring_annotation(signature.return_annotation, function.__globals__)
    given = [each.replace(annotation=annotations[each.name]) for each in signature.parameters.values()]
    names = (function.__name__, function.__qualname__, function.__module__)
    parameters = _make_fn_with_signature(*names, inspect.Signature(given, return_annotation=Any), output=False)
    result = None
    if signature.return_annotation is not inspect.Signature.empty:
        passed, name = _make_fn_with_signature(*names, inspect.Signature(return_annotation=returned), output=True)
        assert name == "ret0"
        result = typechecker(passed)
    return Checks(typechecker(parameters), result, any(map(has_shape, (*annotations.values(), returned))))


def checked(function: Any, typechecker: Callable[..., Any]) -> Any:
    """The function, with its parameters and its result checked."""
    code = function.__code__
    if id(code) not in known:
        known[id(code)] = code, checks_of(function, typechecker)
    parameters, result, shapes = known[id(code)][1]

    def call(arguments: Any, named: Any) -> Any:
        __tracebackhide__ = True
        try:
            parameters(*arguments, **named)
            passes = True
        except Exception:
            passes = False
        if not passes:
            return slowly(function, typechecker=typechecker)(*arguments, **named)
        found = function(*arguments, **named)
        if result is not None:
            try:
                result(ret0=found)
            except Exception as error:
                raise TypeCheckError(
                    f"Type-check error whilst checking the return value of {function.__module__}."
                    f"{function.__qualname__}: {error}"
                ) from error
        return found

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        if config.jaxtyping_disable:
            return function(*arguments, **named)
        if not shapes:
            return call(arguments, named)
        push_shape_memo({})
        try:
            return call(arguments, named)
        finally:
            pop_shape_memo()

    wrapped.is_checked = True  # type: ignore[attr-defined]
    return wrapped


def quickly(function: Any = None, *, typechecker: Callable[..., Any]) -> Any:
    """`jaxtyping.jaxtyped`, for what the import hook decorates."""
    if function is None:
        return functools.partial(quickly, typechecker=typechecker)
    if inspect.isclass(function):
        made = function.__init__
        if dataclasses.is_dataclass(function) and not getattr(made, "is_checked", False):
            function.__init__ = quickly(made, typechecker=typechecker)  # type: ignore[misc]
        return function
    if isinstance(function, classmethod | staticmethod):
        return type(function)(quickly(function.__func__, typechecker=typechecker))
    if isinstance(function, property):
        parts = (function.fget, function.fset, function.fdel)
        return property(*(part and quickly(part, typechecker=typechecker) for part in parts))
    if not inspect.isfunction(function):
        return slowly(function, typechecker=typechecker)
    return checked(function, typechecker)


jaxtyping.jaxtyped = quickly
