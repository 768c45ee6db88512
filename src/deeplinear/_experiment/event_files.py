"""TensorBoard's event files, of which only scalars are read; no other package is needed for that.

A file is a list of records: length (8 bytes), checksum (4), an Event, checksum (4). An Event is a protocol buffer with
the step in field 2 and a Summary in field 5; a Summary has Values in field 1; a Value has its tag in field 1 and a
scalar in field 2, or, as TensorFlow 2 writes it, a tensor in field 8 with its number in field 4 (bytes) or 5 (float).
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = "tfevents"
"""Part of the name of every event file."""

Scalars = dict[str, dict[int, float]]
"""Value at each step, by tag."""


def event_files(path: Path) -> list[Path]:
    """Return the event files that a path means: itself, or those in a folder and below it; none if it has none."""
    if path.is_dir():
        return sorted(file for file in path.rglob(f"*{MARK}*") if file.is_file())
    return [path] if MARK in path.name else []


def read_scalars(path: Path) -> Scalars:
    """Return the scalars of an event file; of two values at one step the later one, as after a restart.

    A record that is cut off at the end is left out, since a run may still be writing it.

    Raises
    ------
    ValueError
        If the file is something else.
    """
    found: Scalars = {}
    content = path.read_bytes()
    try:
        for event in _records(content):
            fields = list(_fields(event))
            step = next((_signed(value) for number, value in fields if number == 2), 0)
            for number, summary in fields:
                if number == 5:
                    for tag, value in _values(summary):
                        found.setdefault(tag, {})[step] = value
    except (IndexError, struct.error, UnicodeDecodeError, TypeError):
        raise ValueError(f"{path} is not a TensorBoard event file, or is damaged") from None
    return found


def _records(content: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        end = at + 12 + length
        if end + 4 > len(content):
            if at == 0:
                raise IndexError
            return
        yield content[at + 12 : end]
        at = end + 4


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of the fields of a protocol buffer: whole numbers, or bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _varint(message, at)
        else:
            length = {1: 8, 5: 4}[wire] if wire in (1, 5) else len(message) + 1
        if at + length > len(message):
            raise IndexError
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _values(summary: bytes) -> Iterator[tuple[str, float]]:
    """Tags and numbers of a Summary; what is no scalar is left out."""
    for number, entry in _fields(summary):
        if number != 1:
            continue
        parts = dict(_fields(entry))
        if 2 in parts:
            yield parts[1].decode(), struct.unpack("<f", parts[2])[0]
        elif 8 in parts:
            tensor = dict(_fields(parts[8]))
            packed = tensor.get(4) or tensor.get(5) or b""
            layout = {1: ("<f", 4), 2: ("<d", 8)}.get(tensor.get(1, 0))
            if layout and len(packed) == layout[1]:
                yield parts[1].decode(), struct.unpack(layout[0], packed)[0]
