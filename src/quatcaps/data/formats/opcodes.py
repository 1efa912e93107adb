"""What a pickle says, opcode by opcode, without doing any of it: objects become records of what was asked for.

Only what dicts, lists, tuples, numbers, texts and numpy arrays are pickled with is known. The opcodes are those of
protocols 0 to 5, as the module `pickletools` documents them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from quatcaps.errors import QuatcapsError

OPERATIONS = 100_000
"""The most opcodes a pickle may have; one of CIFAR-10's has at most 60,000."""

_MARK = object()
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\", b"'": b"'", b'"': b'"'}


@dataclass(frozen=True)
class Global:
    """The name of something that unpickling would import."""

    name: str


@dataclass(eq=False)
class Call:
    """A call that unpickling would make, and the state it would give the result."""

    function: str
    arguments: tuple[object, ...]
    state: object = None


@dataclass(eq=False)
class Pairs:
    """A dict's keys and values, the last of a key being the one that counts."""

    items: list[tuple[object, object]] = field(default_factory=list)

    def get(self, key: str) -> object:
        """The value of a key, be it text or bytes, or none."""
        for found, value in reversed(self.items):
            if (isinstance(found, str) and found == key) or (isinstance(found, bytes) and found == key.encode()):
                return value
        return None


class Machine:
    """Walks through a pickle; `allowed` are the globals that may be named in it."""

    def __init__(self, data: bytes, name: str, allowed: frozenset[str]) -> None:
        self._data = data
        self._name = name
        self._allowed = allowed
        self._position = 0
        self._stack: list[object] = []
        self._memo: dict[int, object] = {}

    def run(self) -> object:
        """What the pickle describes, in terms of this module."""
        for _ in range(OPERATIONS):
            start = self._position
            opcode = self._take(1)
            if opcode == b".":
                result = self._pop()
                if self._position != len(self._data):
                    raise self._damaged(f"it goes on after its end at byte {start}")
                return result
            action = _ACTIONS.get(opcode)
            if action is None:
                raise self._damaged(f"opcode {opcode!r} at byte {start} has no place in a batch")
            action(self)
        raise self._damaged(f"it has more than {OPERATIONS} opcodes")

    def _damaged(self, reason: str) -> QuatcapsError:
        return QuatcapsError(f"{self._name} is no batch of CIFAR-10: {reason}; nothing was executed, download it again")

    # Reading

    def _take(self, count: int) -> bytes:
        piece = self._data[self._position : self._position + count]
        if len(piece) != count:
            raise self._damaged(f"it is cut off at byte {len(self._data)}")
        self._position += count
        return piece

    def _unsigned(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _line(self) -> bytes:
        stop = self._data.find(b"\n", self._position)
        if stop < 0:
            raise self._damaged(f"it is cut off at byte {len(self._data)}")
        return self._take(stop + 1 - self._position)[:-1]

    def _decimal(self) -> int:
        line = self._line()
        if not re.fullmatch(rb"-?[0-9]{1,18}L?", line):
            raise self._damaged(f"{line[:40]!r} is no number")
        return int(line.rstrip(b"L"))

    def _decoded(self, text: bytes, encoding: str) -> str:
        try:
            return text.decode(encoding)
        except UnicodeDecodeError as error:
            raise self._damaged("it holds text that cannot be decoded") from error

    # The stack

    def _pop(self) -> object:
        if not self._stack or self._stack[-1] is _MARK:
            raise self._damaged(f"a value is missing before byte {self._position}")
        return self._stack.pop()

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _to_mark(self) -> list[object]:
        values: list[object] = []
        while self._stack:
            value = self._stack.pop()
            if value is _MARK:
                return values[::-1]
            values.append(value)
        raise self._damaged(f"a mark is missing before byte {self._position}")

    def _tuple(self, count: int) -> None:
        self._push(tuple([self._pop() for _ in range(count)][::-1]))

    def _extend(self, values: list[object]) -> None:
        target = self._pop()
        if not isinstance(target, list):
            raise self._damaged(f"values are appended to what is no list before byte {self._position}")
        target.extend(values)
        self._push(target)

    def _update(self, values: list[object]) -> None:
        target = self._pop()
        if not isinstance(target, Pairs) or len(values) % 2:
            raise self._damaged(f"items are given to what is no dict before byte {self._position}")
        target.items.extend(zip(values[::2], values[1::2], strict=True))
        self._push(target)

    def _dict(self) -> None:
        values = self._to_mark()
        self._push(Pairs())
        self._update(values)

    def _string(self) -> None:
        line = self._line()
        if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
            raise self._damaged(f"a string without quotes ends at byte {self._position}")
        self._push(_ESCAPE.sub(_unescape, line[1:-1]))

    # Memory

    def _put(self, index: int) -> None:
        value = self._pop()
        self._memo[index] = value
        self._push(value)

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise self._damaged(f"memory {index} is asked for before byte {self._position}, but was not filled")
        self._push(self._memo[index])

    # What unpickling would import and call

    def _global(self, module: object, attribute: object) -> None:
        if not isinstance(module, str) or not isinstance(attribute, str):
            raise self._damaged(f"the name of a global is no text before byte {self._position}")
        name = f"{module}.{attribute}"
        if name not in self._allowed:
            raise QuatcapsError(
                f"{self._name} asks for {name[:100]!r}, which no batch of CIFAR-10 does: nothing was executed; "
                "do not unpickle this file, download it again"
            )
        self._push(Global(name))

    def _global_lines(self) -> None:
        module = self._decoded(self._line(), "utf-8")
        self._global(module, self._decoded(self._line(), "utf-8"))

    def _stack_global(self) -> None:
        attribute = self._pop()
        self._global(self._pop(), attribute)

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise self._damaged(f"a call of what is no function before byte {self._position}")
        self._push(Call(function.name, arguments))

    def _build(self) -> None:
        state, target = self._pop(), self._pop()
        if not isinstance(target, Call):
            raise self._damaged(f"a state is given to what has none before byte {self._position}")
        target.state = state
        self._push(target)


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes.fromhex(match[1].decode())
    return _ESCAPED.get(match[2], match[0])


def _append(machine: Machine) -> None:
    machine._extend([machine._pop()])


def _set_item(machine: Machine) -> None:
    value = machine._pop()
    machine._update([machine._pop(), value])


_ACTIONS: dict[bytes, Callable[[Machine], object]] = {
    b"\x80": lambda m: m._take(1),  # PROTO
    b"\x95": lambda m: m._take(8),  # FRAME
    b"(": lambda m: m._push(_MARK),
    b"0": lambda m: m._pop(),
    b"1": lambda m: m._to_mark(),
    b"N": lambda m: m._push(None),
    b"\x88": lambda m: m._push(True),
    b"\x89": lambda m: m._push(False),
    b"I": lambda m: m._push(m._decimal()),
    b"L": lambda m: m._push(m._decimal()),
    b"J": lambda m: m._push(struct.unpack("<i", m._take(4))[0]),
    b"K": lambda m: m._push(m._unsigned(1)),
    b"M": lambda m: m._push(m._unsigned(2)),
    b"\x8a": lambda m: m._push(int.from_bytes(m._take(m._unsigned(1)), "little", signed=True)),
    b"S": lambda m: m._string(),
    b"T": lambda m: m._push(m._take(m._unsigned(4))),
    b"U": lambda m: m._push(m._take(m._unsigned(1))),
    b"B": lambda m: m._push(m._take(m._unsigned(4))),
    b"C": lambda m: m._push(m._take(m._unsigned(1))),
    b"\x8e": lambda m: m._push(m._take(m._unsigned(8))),
    b"\x96": lambda m: m._push(m._take(m._unsigned(8))),
    b"V": lambda m: m._push(m._decoded(m._line(), "raw-unicode-escape")),
    b"X": lambda m: m._push(m._decoded(m._take(m._unsigned(4)), "utf-8")),
    b"\x8c": lambda m: m._push(m._decoded(m._take(m._unsigned(1)), "utf-8")),
    b"\x8d": lambda m: m._push(m._decoded(m._take(m._unsigned(8)), "utf-8")),
    b"]": lambda m: m._push([]),
    b"l": lambda m: m._push(m._to_mark()),
    b"a": _append,
    b"e": lambda m: m._extend(m._to_mark()),
    b"}": lambda m: m._push(Pairs()),
    b"d": lambda m: m._dict(),
    b"s": _set_item,
    b"u": lambda m: m._update(m._to_mark()),
    b")": lambda m: m._push(()),
    b"t": lambda m: m._push(tuple(m._to_mark())),
    b"\x85": lambda m: m._tuple(1),
    b"\x86": lambda m: m._tuple(2),
    b"\x87": lambda m: m._tuple(3),
    b"p": lambda m: m._put(m._decimal()),
    b"q": lambda m: m._put(m._unsigned(1)),
    b"r": lambda m: m._put(m._unsigned(4)),
    b"\x94": lambda m: m._put(len(m._memo)),
    b"g": lambda m: m._get(m._decimal()),
    b"h": lambda m: m._get(m._unsigned(1)),
    b"j": lambda m: m._get(m._unsigned(4)),
    b"c": lambda m: m._global_lines(),
    b"\x93": lambda m: m._stack_global(),
    b"R": lambda m: m._reduce(),
    b"b": lambda m: m._build(),
}
