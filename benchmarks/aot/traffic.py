"""The bytes that a compiled program moves to or from the memory of an accelerator."""

import math
import re

_COMPUTATION = re.compile(  # whether it is the program's own, name and body
    r"^(ENTRY )?%?([\w.\-]+) [^\n]*-> [^\n]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)
_INSTRUCTION = re.compile(  # name, type, operation, operands and attributes
    r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(([^)]*)\)(.*)$", re.MULTILINE
)
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\](\{[^}]*\})?")
_NAME = re.compile(r"%([\w.\-]+)")
_FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "iota"}
_FREE |= {"copy-done", "slice-done", "async-done", "partition-id", "replica-id"}
_SLICES = {"slice", "dynamic-slice"}

Program = dict[str, list[tuple[str, ...]]]


def moved_bytes(hlo: str) -> int:
    """The bytes of all operands and results in main memory, in the text of optimized HLO.

    A fusion that only slices an operand reads the slice: of a slice with strides, the places alone
    are counted, though a TPU may read what lies between them. Arrays in a TPU's VMEM (memory space
    1 of a layout, ``S(1)``) cost nothing, and of a conditional the branch that moves least counts.
    """
    computations = _COMPUTATION.findall(hlo)
    program = {name: _INSTRUCTION.findall(body) for _, name, body in computations}
    [entry] = [name for marked, name, _ in computations if marked]
    return _of_computation(program, entry)


def _of_computation(program: Program, name: str) -> int:
    kinds = {instruction: kind for instruction, kind, *_ in program[name]}
    total = 0
    for _, kind, operation, operands, attributes in program[name]:
        named = [n for n in _NAME.findall(attributes) if n in program]
        if operation in _FREE or "ConcatBitcast" in attributes:
            continue
        if operation in ("call", "conditional"):
            total += min(_of_computation(program, called) for called in named)
        elif operation == "while":
            raise NotImplementedError("a loop, whose rounds are not counted here")
        elif operation == "copy-start":  # its result is a tuple: to, from, and a context
            total += sum(_sizes(kind)[:2])
        elif operation == "slice-start":  # (from), to, and a context
            source, *_, target, _ = _sizes(kind)
            total += target + (_sizes(kind, anywhere=True)[-2] if source else 0)
        else:
            total += sum(_sizes(kind))
            sliced = _sliced(program[named[0]]) if operation == "fusion" else {}
            if operation in _SLICES:
                sliced = {0: sum(_sizes(kind, anywhere=True))}
            for place, operand in enumerate(_NAME.findall(operands)):
                whole = sum(_sizes(kinds[operand]))
                total += min(whole, sliced.get(place, whole))
    return total


def _sizes(kind: str, *, anywhere: bool = False) -> list[int]:
    """The bytes of each array of a type; 0 outside of main memory, unless ``anywhere`` counts."""
    sizes = []
    for dtype, shape, layout in _ARRAY.findall(kind):
        bits = 8 if dtype == "pred" else int(re.findall(r"\d+", dtype)[0])
        count = math.prod(int(n) for n in shape.split(",") if n)
        sizes.append(0 if "S(" in layout and not anywhere else count * max(bits // 8, 1))
    return sizes


def _sliced(fused: list[tuple[str, ...]]) -> dict[int, int]:
    """For each operand of a fusion of which only slices are read, their bytes."""
    operand_of = {name: int(place) for name, _, op, place, _ in fused if op == "parameter"}
    read: dict[int, int] = {}
    whole = set()
    for name, kind, operation, operands, _ in fused:
        for place, operand in enumerate(_NAME.findall(operands)):
            if operand not in operand_of:
                continue
            number = operand_of[operand]
            if operation in _SLICES and place == 0:
                read[number] = read.get(number, 0) + sum(_sizes(kind, anywhere=True))
            elif operation == "bitcast":
                operand_of[name] = number
            else:
                whole.add(number)
    return {number: size for number, size in read.items() if number not in whole}
