"""The answer to one question: facts of the compiler, bounds, mends; as plain data, and as text for a person."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from posenc_jax.config import Config
from posenc_jax.durations import split_duration, to_steps
from posenc_jax.errors import UserError
from posenc_jax.evaluation.preflight.bounds import hbm_traffic, sent, step_bound
from posenc_jax.evaluation.preflight.process import Ask, Question
from posenc_jax.parallel.chips import chip_of

GIB = 2**30
MEND_SECONDS = 100
"""After so long no further mend is tried."""

Say = Callable[[str], None]


def answer(ask: Ask, question: Question, say: Say) -> dict[str, Any]:
    """Compiles, and where it does not fit looks for a setting that makes it fit. Sizes are bytes on one device."""
    say(f"compiling for {question.topology}")
    began = time.monotonic()
    facts = ask(question)
    result = described(question, facts)
    if not facts["fits"]:
        result["mend"] = None
        result["tried"] = []
        for overrides in mends(question.config, facts["shares"]):
            if time.monotonic() - began > MEND_SECONDS:
                break
            changed = dataclasses.replace(question, config=overridden(question.config, overrides))
            facts = ask(changed)
            words = [f"--config.{key}={value}" for key, value in overrides.items()]
            result["tried"].append({"with": words, "fits": facts["fits"], "needed": facts["needed"]})
            say(f"{' '.join(words)}: {_gib(facts['needed'])}, {'fits' if facts['fits'] else 'does not fit'}")
            if facts["fits"]:
                result["mend"] = {"with": words, **described(changed, facts)}
                break
    return result


def described(question: Question, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts with what follows from them."""
    config, chip = question.config, chip_of(facts["device_kind"])
    if chip is None:
        raise UserError(f"no figures are known of the device {facts['device_kind']!r}")
    bound = step_bound(chip, config, question.length, facts)
    bound["days"] = _days(config, question.length, bound["seconds"])
    memory = {"needed": facts["needed"], "available": facts["available"], **facts.get("memory", {})}
    return {
        "fits": facts["fits"],
        "topology": question.topology.name,
        "slices": question.topology.slices,
        "devices": facts["devices"],
        "device_kind": facts["device_kind"],
        "mesh": facts["mesh"],
        "rows": config.train.batch_size,
        "length": question.length,
        "vocab_size": config.model.vocab_size,
        "parameters": facts["parameters"],
        "memory": memory,
        "collectives": facts.get("collectives"),
        "pallas_kernels": facts.get("pallas_kernels"),
        "flops": {**facts["flops"], "total": sum(facts["flops"].values())},
        "hbm_traffic": hbm_traffic(config, question.length, facts),
        "bound": bound,
        "chip": {**dataclasses.asdict(chip), "kinds": list(chip.kinds)},
        "seconds": facts["seconds"],
    }


def mends(config: Config, shares: int) -> list[dict[str, Any]]:
    """Settings that change no result, cheapest first: smaller slices of the batch, layers computed again, the
    parameters spread over the devices."""
    now = config.train.accumulate
    slices = [now * k for k in (2, 4, 8, 16) if config.train.batch_size % (shares * now * k) == 0]
    found: list[dict[str, Any]] = [{"train.accumulate": k} for k in slices]
    if not config.model.remat:
        found += [{"model.remat": True}, *({"model.remat": True, "train.accumulate": k} for k in slices[-1:])]
    if config.mesh.data == -1 and config.mesh.fsdp == 1 and config.mesh.tensor == 1 and shares > 1:
        found.append({"mesh.fsdp": shares, **({} if config.model.remat else {"model.remat": True})})
    return found


def overridden(config: Config, overrides: Mapping[str, Any]) -> Config:
    """With {"train.accumulate": 2} and the like."""
    for key, value in overrides.items():
        group, _, name = key.partition(".")
        config = dataclasses.replace(config, **{group: dataclasses.replace(getattr(config, group), **{name: value})})
    return config


def _days(config: Config, length: int, seconds: float) -> float | None:
    """Of the whole run; None where its length goes by epochs, whose rows are not known here."""
    _, unit = split_duration(config.train.steps, "train.steps")
    if unit in ("epochs", "%"):
        return None
    tokens = config.train.batch_size * length
    steps = to_steps(config.train.steps, "train.steps", tokens_per_step=tokens, steps_per_epoch=1, run=None)
    return steps * seconds / 86_400


# ---- text ---------------------------------------------------------------------------------------------------------


def verdict(result: Mapping[str, Any]) -> str:
    """One sentence with both figures."""
    needed, available = result["memory"]["needed"], result["memory"]["available"]
    if result["fits"]:
        return f"fits: {_gib(needed)} of the {_gib(available)} of a device, {_gib(available - needed)} to spare"
    over = _gib(needed - available)
    return f"does not fit: needs {_gib(needed)} of a device that has {_gib(available)}, {over} too much"


def lines(result: Mapping[str, Any]) -> list[str]:
    """All of an answer, the verdict first."""
    found = [verdict(result)]
    program = result
    if not result["fits"]:
        if result["mend"]:
            program = result["mend"]
            spare = program["memory"]["available"] - program["memory"]["needed"]
            found.append(
                f"fits with {' '.join(program['with'])}: {_gib(program['memory']['needed'])}, {_gib(spare)} to spare; "
                "what follows is of that program"
            )
        else:
            found.append("no setting that was tried makes it fit; take fewer rows, or a larger topology")
    if (largest := result.get("largest_batch")) is not None:
        found.append(
            f"largest batch that fits: {largest['rows']} rows ({_gib(largest['needed'])})"
            if largest["rows"]
            else "not even the smallest batch that the mesh allows fits"
        )
    return [*found, "", *(f"  {name:<14}  {text}" for name, text in _details(program))]


def _details(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    memory, flops, bound = result["memory"], result["flops"], result["bound"]
    slices = f"{result['slices']} slices of " if result["slices"] > 1 else ""
    mesh = " x ".join(f"{axis} {size}" for axis, size in result["mesh"].items())
    details = [
        ("topology", f"{slices}{result['topology']}: {result['devices']} x {result['device_kind']}, mesh {mesh}"),
        ("batch", f"{result['rows']} rows x {result['length']}, {result['vocab_size']:,} words"),
        ("parameters", f"{result['parameters']:,}"),
    ]
    if "arguments" in memory:
        kinds = ("arguments", "outputs", "aliased", "temporaries", "code")
        details.append(("a device", ", ".join(f"{kind} {_gib(memory[kind])}" for kind in kinds)))
        whole = memory["arguments"] + memory["outputs"] - memory["aliased"] + memory["temporaries"]
        if whole > memory["available"]:
            details.append(("", f"tight: arguments and temporaries apart are {_gib(whole)}; leave more room"))
    for row in result["collectives"] or []:
        details.append((
            "collective",
            f"{row['kind']} over {' and '.join(row['axes'])} ({row['group']} devices): {row['count']} a step, "
            f"{row['bytes'] / 1e6:,.1f} MB, {sent(row) / 1e6:,.1f} MB out of each",
        ))  # fmt: skip
    if result["collectives"] == []:
        details.append(("collective", "none"))
    if result["pallas_kernels"] is not None:
        details.append(("Pallas", ", ".join(result["pallas_kernels"]) or "no kernels"))
    parts = ", ".join(f"{name} {seconds * 1e3:,.1f} ms" for name, seconds in bound["parts"].items())
    run = f"; the whole run {bound['days']:,.2f} days" if bound["days"] is not None else ""
    return [
        *details,
        ("operations", f"{flops['total'] / 1e12:,.2f} T a step: encoder {flops['encoder'] / 1e12:,.2f}, "
                       f"heads {flops['heads'] / 1e12:,.2f}"),
        ("HBM traffic", f"at least {result['hbm_traffic'] / 1e9:,.2f} GB a device and step"),
        ("bound", f"a step takes at least {bound['seconds'] * 1e3:,.1f} ms, by {bound['by']} ({parts}): at most "
                  f"{bound['tokens_per_second']:,.0f} tokens/s{run}"),
        ("", f"no forecast: every unit at its published peak ({result['chip']['source']})"),
    ]  # fmt: skip


def _gib(size: float) -> str:
    return f"{size / GIB:.2f} GiB"
