"""`tsr audit`: check tokens, masks and log-probabilities of training rows from any trainer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import Shown, check_there, progress_bar, show_tables, with_json, write_json
from tsr_gym.optional import require


@dataclass(frozen=True, slots=True)
class AuditArgs:
    """Check that training rows of any trainer train every sampled token and no other.

    The exit status is 1 if a check fails.
    """

    rows: Annotated[Path, tyro.conf.Positional]
    """JSON lines or Parquet with token ids (input_ids, or prompt_ids and completion_ids), the marks of trained tokens
    (mask, loss_mask, labels ...), and optionally logprobs and messages."""
    model: Path | None = None
    """Folder of the model that sampled the rows: its log-probabilities and its tokenizer are compared."""
    tokenizer: Path | None = None
    """Folder of a tokenizer with the chat template that the rows were made by; the model's by default."""
    temperature: float = 1.0
    """Temperature at which the rows were sampled."""
    tolerance: float = 0.1
    """Largest mean difference from the model's log-probabilities, in nats."""
    json: Path | None = None
    """File for all findings as JSON; without a file they are printed."""


def main(args: list[str]) -> int:
    """Print one line per check, and return 1 if a check fails."""
    options = read_arguments(AuditArgs, with_json(args), prog="tsr audit")
    check_there(options.rows)
    logprobs, tokenizer = None, None
    if options.model is not None:
        require("torch", "agents")
        from tsr_gym.agents.bridges.audit import witness

        logprobs, tokenizer = witness(options.model, temperature=options.temperature)
    if options.tokenizer is not None:
        require("transformers", "agents")
        from tsr_gym.agents.models.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(options.tokenizer)
    from tsr_gym.agents.bridges.audit import audit_file

    with progress_bar() as watch:
        checks = audit_file(
            options.rows, tokenizer=tokenizer, logprobs=logprobs, tolerance=options.tolerance, watch=watch
        )
    rows = [{**check._asdict(), "findings": [finding._asdict() for finding in check.findings]} for check in checks]
    if write_json({"rows": str(options.rows), "checks": rows}, options.json):
        show_tables([_table(options.rows, checks)])
    return int(any(check.findings for check in checks))


def _table(rows: Path, checks: Sequence[Any]) -> Shown:
    lines = []
    for check in checks:
        first = check.findings[0] if check.findings else None
        example = check.holds if first is None else f"row {first.row}: {first.says}"
        verdict = "not checked" if not check.rows else f"{len(check.findings)} wrong" if first else "ok"
        lines.append((check.name, verdict, str(check.rows), example))
    missing = [check.name for check in checks if not check.rows]
    caption = f"not checked: {', '.join(missing)}; see --tokenizer, --model and docs/audit.md" if missing else None
    return Shown(f"audit of {rows}", ("check", "verdict", "rows", "what holds, or the first error"), lines, caption)
