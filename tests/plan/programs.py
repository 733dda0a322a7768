"""Small programs in the language of compiled ones."""

HEAD = "HloModule m, is_scheduled=true, entry_computation_layout={()->f32[]}"


def program(entry: str, *computations: str, head: str = HEAD) -> str:
    """A program of a few lines; the last line of a computation is its root."""
    parts = [head, *computations, f"ENTRY %main () -> f32[] {{\n{_lines(entry)}\n}}"]
    return "\n\n".join(parts) + "\n"


def computation(name: str, body: str) -> str:
    """A computation to call."""
    return f"%{name} (p: f32[]) -> f32[] {{\n{_lines(body)}\n}}"


def _lines(body: str) -> str:
    lines = [line.strip() for line in body.strip().split("\n")]
    lines[-1] = lines[-1] if lines[-1].startswith("ROOT ") else f"ROOT {lines[-1]}"
    return "\n".join(f"  {line}" for line in lines)
