"""The types of settings: what pydantic is told of the values that units.py reads."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from tandemq_server.config.units import (
    parse_address,
    parse_bytes,
    parse_call_pattern,
    parse_chap,
    parse_count,
    parse_host,
    parse_pap,
    parse_reference,
    parse_seconds,
    parse_share,
)

Bytes = Annotated[int, BeforeValidator(parse_bytes)]
Share = Annotated[str, BeforeValidator(parse_share)]
Seconds = Annotated[float, BeforeValidator(parse_seconds)]
Count = Annotated[int, BeforeValidator(parse_count)]
Address = Annotated[str, AfterValidator(parse_address)]
Host = Annotated[str, AfterValidator(parse_host)]
Reference = Annotated[str, AfterValidator(parse_reference)]
CallPattern = Annotated[str, AfterValidator(parse_call_pattern)]
ChapHash = Annotated[bytes, BeforeValidator(parse_chap), WithJsonSchema({"type": "string"})]
PapHash = Annotated[
    tuple[bytes, bytes], BeforeValidator(parse_pap), WithJsonSchema({"type": "string"})
]
