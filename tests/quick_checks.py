"""jaxtyping's checks of shapes and types, in a part of their time. Importing this, before what is checked, is all.

jaxtyping binds every call to the function's signature, for messages and for shapes that name arguments, and checks the
arguments twice: before the call, and again with what it returns. Here they are checked once, when the call begins, and
what it returns when it ends, both against the same sizes. A function's checks are made when it is first called, but for
a call that PyTorch traces, which cannot make them; a test makes those of all functions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, get_type_hints

import jaxtyping
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import TypeCheckError
from jaxtyping._config import config
from jaxtyping._decorator import _destring_annotation
from jaxtyping._storage import pop_shape_memo, push_shape_memo

jaxtyped = jaxtyping.jaxtyped
prepared: list[Callable[[], Any]] = []
"""What makes the checks of each function that is not inside another."""


def hints_of(function: FunctionType) -> dict[str, Any]:
    """As jaxtyping has them: what cannot be found is anything."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:
        found = function.__annotations__.items()
        return {name: _destring_annotation(hint, function.__globals__) for name, hint in found}


def names_arguments(function: FunctionType) -> bool:
    """Whether a shape is given by arguments, in braces."""
    return any("{" in str(hint) for hint in function.__annotations__.values())


def left_alone(function: Any) -> bool:
    """What returns before it ran, and what is no function."""
    lazily = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    if not isinstance(function, FunctionType) or any(is_so(function) for is_so in lazily):
        return True
    return names_arguments(function)


def with_hints(function: FunctionType) -> FunctionType:
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    functools.update_wrapper(copy, function)
    del copy.__wrapped__  # type: ignore[attr-defined]
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, hints_of(function)
    return copy


def with_sizes(check: Callable[..., Any]) -> Callable[..., Any]:
    """Sizes that a call finds are those of the shapes in its result, and of no other call."""

    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        push_shape_memo({})
        try:
            return check(*arguments, **named)
        finally:
            pop_shape_memo()

    return call


def quickly(function: Any = None, *, typechecker: Callable[[Any], Any]) -> Any:
    """Stands in for `jaxtyping.jaxtyped`."""
    if function is None:
        return functools.partial(quickly, typechecker=typechecker)
    if isinstance(function, FunctionType) and function.__code__.co_filename == __file__:
        return function  # what a dataclass has from the one above it
    if left_alone(function):
        return jaxtyped(function, typechecker=typechecker)
    check: Callable[..., Any] | None = None

    def prepare() -> Callable[..., Any]:
        nonlocal check
        hinted = with_hints(function)
        check = typechecker(hinted)
        if "jaxtyping" in str(hinted.__annotations__):
            check = with_sizes(check)
        return check

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        if config.jaxtyping_disable or (check is None and torch.compiler.is_compiling()):
            return function(*arguments, **named)
        try:
            return (check or prepare())(*arguments, **named)
        except BeartypeCallHintViolation as violation:
            raise TypeCheckError(str(violation)) from violation

    if "<locals>" not in function.__qualname__:
        prepared.append(prepare)
    return call


jaxtyping.jaxtyped = quickly
jaxtyping._decorator.jaxtyped = quickly  # by which dataclasses are checked
