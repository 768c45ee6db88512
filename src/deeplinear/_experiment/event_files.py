"""TensorBoard's event files, of which only scalars are read; no other package is needed for that.

A file is a list of records: length (8 bytes), its checksum (4), an Event, its checksum (4). Checksums are CRC-32C,
rotated and shifted, since what they check may hold checksums itself. An Event is a protocol buffer with the step in
field 2 and a Summary in field 5; a Summary has Values in field 1; a Value has its tag in field 1 and a scalar in field
2, or, as TensorFlow 2 writes it, a tensor in field 8 with its number in field 4 (bytes) or 5 (float).
"""

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

MARK = "tfevents"
"""Part of the name of every event file."""

_SMALL = 2**16
"""Bytes of an event up to which its checksum is always verified; larger ones are pictures and the like, unless they
hold scalars."""

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
        If the file is something else, or is damaged.
    """
    found: Scalars = {}
    content = path.read_bytes()
    try:
        for event, checksum in _records(content):
            if len(event) <= _SMALL:
                _verify(event, checksum)
            fields = list(_fields(event))
            step = next((_signed(value) for number, value in fields if number == 2), 0)
            scalars = [each for number, summary in fields if number == 5 for each in _values(summary)]
            if scalars and len(event) > _SMALL:
                _verify(event, checksum)
            for tag, value in scalars:
                found.setdefault(tag, {})[step] = value
    except (IndexError, KeyError, AttributeError, struct.error, UnicodeDecodeError, TypeError):
        raise ValueError(f"{path} is not a TensorBoard event file, or is damaged") from None
    return found


def _records(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Events and their checksums."""
    at = 0
    while at + 12 <= len(content):
        length, checksum = struct.unpack_from("<QI", content, at)
        _verify(content[at : at + 8], checksum)
        end = at + 12 + length
        if end + 4 > len(content):
            if at == 0:
                raise IndexError
            return
        yield content[at + 12 : end], struct.unpack_from("<I", content, end)[0]
        at = end + 4


def _verify(content: bytes, checksum: int) -> None:
    if masked_crc(content) != checksum:
        raise IndexError


def masked_crc(content: bytes) -> int:
    """Return the checksum of a part of an event file.

    Examples
    --------
    >>> hex(masked_crc((24).to_bytes(8, "little")))  # how event files begin
    '0x224b7fa3'
    """
    crc, table = 0xFFFFFFFF, _table()
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _table() -> list[int]:
    """Remainders of all bytes by Castagnoli's polynomial, its bits reversed."""
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return table


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
