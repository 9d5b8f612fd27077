#!/usr/bin/env python3
"""Writes the test vectors of docs/wire-format.md: frames, good and bad, in vectors.json, with what each holds or which rule it breaks;
and a corpus for the fuzzer.

Its encoder and its CRC-32C were written from the page, not from the C++ headers, so that one checks the other.

SPDX-License-Identifier: Apache-2.0

    make_vectors.py            write
    make_vectors.py --check    exit 1 if a file is not what would be written
    make_vectors.py --hex NAME print one frame as the page shows it
"""
import json
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE.parent.parent / "fuzz" / "corpus" / "frame"
SEEDS = ("one_row_little", "one_row_big", "ragged_little", "four_streams_little", "no_rows", "bf16_big", "rank_3_for_one_stream", "alias", "no_offsets",
         "shape_beyond_2_63")
WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8, "U8": 1}
CONTRACT = {"adapter": "llama", "first_layer": 2, "hidden": 4, "streams": 1, "max_positions": 64}


def crc32c(data):
    """One bit at a time: polynomial 0x1EDC6F41, reflected, all ones before and after."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def bundle(**changed):
    """The bundle that most vectors are made from: one row of four numbers."""
    fields = {"adapter": "llama", "schema": 1, "tensor": "residual_stream", "normalized": 0, "next_layer": 2, "profile": "canonical_1",
              "shape": [1, 4], "dtype": "F32", "streams": 1, "row_offsets": [0, 1], "positions": [5], "order": "little",
              "bits": [0x3F800000, 0xC0000000, 0x3F000000, 0x00000001]}
    assert set(changed) <= set(fields)
    return {**fields, **changed}


def frame(b, *, magic=b"\x89TENON\r\n", version=1, head_bytes=None, payload_bytes=None, preamble_zero=0, preamble_crc=None, order=None, rank=None,
          zero=0, dtype=None, extents=None, offset_count=None, position_count=None, padding=b"\0", payload=None, crc=None):
    """The bytes of a bundle. Every keyword replaces what would be right."""
    names = [name.encode("latin-1") for name in (b["adapter"], b["tensor"], b["profile"])]
    text = b"".join(names)
    text += padding * (-len(text) % 8)
    mark = "<" if b["order"] == "little" else ">"
    kind = {1: "B", 2: "H", 4: "I", 8: "Q"}[WIDTHS[b["dtype"]]]
    numbers = b"".join(struct.pack(mark + kind, bits) for bits in b["bits"])
    if payload is not None:
        numbers = payload
    shape = (b["shape"] + [0, 0, 0, 0])[:4] if extents is None else extents
    head = struct.pack("<iiiBBBB", b["schema"], b["next_layer"], b["streams"], b["normalized"],
                       {"little": 1, "big": 2}[b["order"]] if order is None else order, len(b["shape"]) if rank is None else rank, zero)
    head += (b["dtype"].encode() if dtype is None else dtype).ljust(8, b"\0")
    head += struct.pack("<4q", *shape)
    head += struct.pack("<3I", *map(len, names))
    head += struct.pack("<IQ", len(b["row_offsets"]) if offset_count is None else offset_count,
                        len(b["positions"]) if position_count is None else position_count)
    head += text + struct.pack(f"<{len(b['row_offsets'])}q", *b["row_offsets"]) + struct.pack(f"<{len(b['positions'])}q", *b["positions"])
    preamble = magic + struct.pack("<IIQI", version, 32 + len(head) if head_bytes is None else head_bytes,
                                   len(numbers) if payload_bytes is None else payload_bytes, preamble_zero)
    preamble += struct.pack("<I", crc32c(preamble) if preamble_crc is None else preamble_crc)
    whole = preamble + head + numbers
    return whole + struct.pack("<I", crc32c(whole) if crc is None else crc)


RAGGED = {"shape": [6, 4], "row_offsets": [0, 1, 4, 6], "positions": [7, 0, 1, 2, 62, 63],
          "bits": [0x80000000, 0x00000000, 0x7F7FFFFF, 0xFF7FFFFF, 0x00800000, 0x807FFFFF] + [0x3F800000 + 0x00012345 * i for i in range(18)]}
BF16 = {"dtype": "BF16", "bits": [0x3F80, 0xC000, 0x3F00, 0x0001]}


def vectors():
    """name, bytes, the bundle or None, the rule that unpacking breaks, the rule that the contract breaks, changes of the contract."""
    def good(name, law="", contract=None, **changed):
        b = bundle(**changed)
        return name, frame(b), b, "", law, contract or {}

    def bad(name, law, changed=None, **damage):
        return name, frame(bundle(**(changed or {})), **damage), None, law, "", {}

    yield good("one_row_little")
    yield good("one_row_big", order="big")
    yield good("ragged_little", **RAGGED)
    yield good("ragged_big", **RAGGED, order="big")
    yield good("four_streams_little", shape=[2, 4, 4], streams=4, row_offsets=[0, 2], positions=[0, 1], bits=list(range(0x40000000, 0x40000020)),
               contract={"streams": 4})
    yield good("four_streams_big", shape=[2, 4, 4], streams=4, row_offsets=[0, 2], positions=[0, 1], bits=list(range(0x40000000, 0x40000020)),
               order="big", contract={"streams": 4})
    yield good("smallest", shape=[1, 1], bits=[0x3F800000], contract={"hidden": 1})
    yield good("no_rows", shape=[0, 4], row_offsets=[0], positions=[], bits=[])
    yield good("alias", adapter=" LlamaForCausalLM ")
    # Whole frames that the stage of CONTRACT does not take.
    yield good("adapter_other", "bundle_adapter_is_the_stages", adapter="qwen3")
    yield good("adapter_known", "bundle_adapter_is_certified", adapter="gemma2")
    yield good("adapter_unknown", "bundle_adapter_is_certified", adapter="llama2")
    yield good("adapter_empty", "bundle_adapter_is_certified", adapter="")
    yield good("schema_0", "bundle_schema_is_the_stages", schema=0)
    yield good("schema_2", "bundle_schema_is_the_stages", schema=2)
    yield good("schema_below_zero", "bundle_schema_is_the_stages", schema=-1)
    yield good("tensor_other", "bundle_tensor_is_the_stages", tensor="hidden_states")
    yield good("normalized", "bundle_is_not_normalized", normalized=1)
    yield good("layer_before", "bundle_layer_is_the_stages", next_layer=1)
    yield good("layer_after", "bundle_layer_is_the_stages", next_layer=3)
    yield good("profile_other", "bundle_profile_is_the_stages", profile="canonical_2")
    yield good("rank_1", "bundle_rank_is_the_stages", shape=[4])
    yield good("rank_3_for_one_stream", "bundle_rank_is_the_stages", shape=[1, 1, 4])
    yield good("rows_below_zero", "bundle_rows_are_counted", shape=[-1, 4])
    yield good("width_other", "bundle_shape_is_the_stages", shape=[1, 5])
    yield good("bf16_little", "bundle_dtype_is_the_stages", **BF16)
    yield good("bf16_big", "bundle_dtype_is_the_stages", **BF16, order="big")
    yield good("streams_other", "bundle_streams_are_the_stages", streams=2)
    yield good("no_offsets", "bundle_row_offsets_begin_at_zero", row_offsets=[])
    yield good("offsets_from_1", "bundle_row_offsets_begin_at_zero", row_offsets=[1, 1])
    yield good("offsets_repeat", "bundle_row_offsets_ascend", row_offsets=[0, 1, 1])
    yield good("offsets_fall", "bundle_row_offsets_ascend", row_offsets=[0, 2, 1])
    yield good("offsets_beyond", "bundle_row_offsets_cover_the_rows", row_offsets=[0, 2])
    yield good("positions_fewer", "bundle_positions_are_the_rows", positions=[])
    yield good("positions_more", "bundle_positions_are_the_rows", positions=[5, 6])
    yield good("position_below_zero", "bundle_positions_fit_the_model", positions=[-1])
    yield good("position_beyond", "bundle_positions_fit_the_model", positions=[64])
    yield good("positions_fall", "bundle_positions_follow_on", **{**RAGGED, "positions": [7, 0, 1, 0, 62, 63]})
    yield good("positions_skip", "bundle_positions_follow_on", **{**RAGGED, "positions": [7, 0, 2, 3, 62, 63]})
    yield good("payload_short", "bundle_payload_is_the_shapes", bits=[0x3F800000] * 3)
    yield good("payload_long", "bundle_payload_is_the_shapes", bits=[0x3F800000] * 5)
    yield good("shape_beyond_2_63", "bundle_payload_is_the_shapes", shape=[1, 1 << 62], contract={"hidden": 1 << 62})
    yield good("infinity_little", "bundle_values_are_finite", bits=[0x3F800000, 0x3F800000, 0xFF800000, 0x3F800000])
    yield good("nan_big", "bundle_values_are_finite", order="big", bits=[0x3F800000, 0x3F800000, 0x3F800000, 0x7F800001])
    # What is no frame.
    yield bad("magic_other", "frame_magic_is_known", magic=b"\x89TENSR\r\n")
    yield bad("magic_line_feed", "frame_magic_is_known", magic=b"\x89TENON\n\n")
    yield bad("version_0", "frame_version_is_known", version=0)
    yield bad("version_2", "frame_version_is_known", version=2)
    yield bad("preamble_checksum", "frame_preamble_is_intact", preamble_crc=0)
    yield bad("preamble_reserved", "frame_reserved_is_zero", preamble_zero=1)
    yield bad("head_too_small", "frame_head_fits", head_bytes=104)
    yield bad("head_odd", "frame_head_fits", head_bytes=147)
    yield bad("length_2_63", "frame_length_fits", payload_bytes=1 << 63)
    yield bad("length_all_ones", "frame_length_fits", payload_bytes=(1 << 64) - 1)
    yield bad("payload_claimed_longer", "frame_is_whole", payload_bytes=20)
    yield bad("payload_claimed_shorter", "frame_is_whole", payload_bytes=12)
    yield bad("checksum", "frame_checksum_holds", crc=0x12345678)
    yield bad("dtype_unknown", "frame_dtype_is_known", dtype=b"F31")
    yield bad("dtype_lower_case", "frame_dtype_is_known", dtype=b"f32")
    yield bad("dtype_with_tail", "frame_dtype_is_known", dtype=b"F32\0x")
    yield bad("dtype_empty", "frame_dtype_is_known", dtype=b"")
    yield bad("names_too_long", "frame_names_fit", {"adapter": "x" * 256})
    yield bad("rows_too_many", "frame_rows_fit", position_count=(1 << 20) + 1)
    yield bad("positions_2_61", "frame_rows_fit", position_count=(1 << 61) + 1)
    yield bad("sequences_too_many", "frame_sequences_fit", offset_count=(1 << 16) + 2)
    yield bad("rank_5", "frame_rank_fits", rank=5)
    yield bad("extent_beyond_rank", "frame_reserved_is_zero", extents=[1, 4, 1, 0])
    yield bad("order_0", "frame_byte_order_is_known", order=0)
    yield bad("order_3", "frame_byte_order_is_known", order=3)
    yield bad("flag_2", "frame_flag_is_known", {"normalized": 2})
    yield bad("payload_not_whole", "frame_payload_is_whole_elements", payload=b"\0" * 15)
    yield bad("position_missing", "frame_head_is_whole", position_count=2)
    yield bad("position_left_over", "frame_head_is_whole", position_count=0)
    yield bad("offset_missing", "frame_head_is_whole", offset_count=3)
    yield bad("name_with_zero", "frame_names_are_plain", {"adapter": "lla\0a"})
    yield bad("name_beyond_ascii", "frame_names_are_plain", {"profile": "canonical\xe9"})
    yield bad("reserved_byte", "frame_reserved_is_zero", zero=1)
    yield bad("padding", "frame_reserved_is_zero", padding=b"x")
    whole = frame(bundle())
    yield "preamble_cut", whole[:31], None, "frame_preamble_is_whole", "", {}
    yield "nothing", b"", None, "frame_preamble_is_whole", "", {}
    yield "head_cut", whole[:100], None, "frame_is_whole", "", {}
    yield "last_byte_cut", whole[:-1], None, "frame_is_whole", "", {}
    yield "one_byte_more", whole + b"\0", None, "frame_is_whole", "", {}


def files():
    """path -> content of all that this script writes."""
    entries, written = [], {}
    for name, data, b, unpack, check, contract in vectors():
        entry = {"name": name, "frame": data.hex(), "unpack": unpack}
        if b is not None:
            entry.update(check=check, contract={**CONTRACT, **contract}, bundle=b)
        entries.append(entry)
        if name in SEEDS:
            written[CORPUS / name] = data
    written[HERE / "vectors.json"] = ("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n").encode()
    assert len({entry["name"] for entry in entries}) == len(entries) and len(written) == len(SEEDS) + 1
    return written


def main(arguments):
    if arguments[:1] == ["--hex"]:
        data = {name: data for name, data, *_ in vectors()}[arguments[1]]
        for at in range(0, len(data), 16):
            row = data[at:at + 16]
            print(f"{at:04x}  {row.hex(' '):<47}  " + "".join(chr(c) if 32 <= c < 127 else "." for c in row))
        return
    for path, content in files().items():
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        elif not path.is_file() or path.read_bytes() != content:
            sys.exit(f"{path.name} is not what make_vectors.py writes")


if __name__ == "__main__":
    main(sys.argv[1:])
