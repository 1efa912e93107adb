"""Triton's interpreter, in less than half of its time. Importing this is all.

It spends most of it on types: it makes the same ones again for every value. Here they are kept. Values, and all that it
checks, are the same; but for products of tiles in bf16, which it takes for integers.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

patch = interpreter._patch_lang
numpy_type = interpreter._get_np_dtype
broadcast = TritonSemantic.broadcast_impl_value
make_block_type = core.block_type.__init__


@functools.cache
def languages(function: Callable[..., Any]) -> list[Any]:
    """By what names a function calls the language."""
    return [value for value in function.__globals__.values() if inspect.ismodule(value) and value in (tl, core)]


def patch_once(function: Callable[..., Any]) -> Any:
    """Of every function that a kernel calls the language is replaced anew, though the kernel's launch has done so, and
    puts all back at its end."""
    if any(core.is_builtin(language.load) for language in languages(function)):
        return patch(function)
    return interpreter._LangPatchScope()


def patch_attribute(owner: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
    """Calls what the decorator `builtin` wraps: it would only ask for what is given here."""
    inner = getattr(member, "__wrapped__", member)

    def call(*arguments: Any, **named: Any) -> Any:
        named["_semantic"] = interpreter.interpreter_semantic
        return inner(*arguments, **named)

    scope.set_attr(owner, name, call)


numpy_types: dict[str, Any] = {}
block_types: dict[Any, tuple[Any, int, str]] = {}


def numpy_type_once(triton_type: Any) -> Any:
    element = triton_type.scalar
    if element.name not in numpy_types:
        numpy_types[element.name] = numpy_type(element)
    return numpy_types[element.name]


def make_block_type_once(self: Any, element_ty: Any, shape: Any) -> None:
    key = (element_ty.name, *[size.value if isinstance(size, core.constexpr) else size for size in shape])
    if key not in block_types:
        make_block_type(self, element_ty, shape)
        block_types[key] = self.shape, self.numel, self.name
    self.element_ty = element_ty
    self.shape, self.numel, self.name = block_types[key]


@functools.cache
def shape_of(sizes: tuple[int, ...]) -> tuple[Any, Any]:
    """Number of elements and shape, as a tensor has them."""
    return core.constexpr(math.prod(sizes)), core.tuple([core.constexpr(size) for size in sizes])


def make_tensor(self: Any, handle: Any, type: Any) -> None:
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.numel, self.shape = shape_of(tuple(type.shape.values) if type.is_block() else ())


def broadcast_unequal(self: TritonSemantic, lhs: Any, rhs: Any) -> Any:
    one, other = lhs.type, rhs.type
    if one.is_block() and other.is_block() and one.shape.values == other.shape.values:
        return lhs, rhs
    return broadcast(self, lhs, rhs)


def widened(tile: Any) -> Any:
    """bf16, held as 16 bits, in float32."""
    if tile.dtype.scalar != tl.bfloat16:
        return tile
    bits = tile.data.view(np.uint16).astype(np.uint32) << 16
    return interpreter.TensorHandle(bits.view(np.float32), tl.float32)


def dot_of_numbers(self: Any, a: Any, b: Any, *rest: Any) -> Any:
    return dot(self, widened(a), widened(b), *rest)


dot = interpreter.InterpreterBuilder.create_dot
interpreter.InterpreterBuilder.create_dot = dot_of_numbers
interpreter._patch_lang = patch_once
interpreter._patch_attr = patch_attribute
interpreter._get_np_dtype = numpy_type_once
core.block_type.__init__ = make_block_type_once
core.tensor.__init__ = make_tensor
TritonSemantic.broadcast_impl_value = broadcast_unequal
if not interpreter.interpreter_builder.options.debug:
    # Of every sum and product of integers it computes whether it overflows, for an assertion that only debugging makes.
    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, sanitize_overflow=False
    )
