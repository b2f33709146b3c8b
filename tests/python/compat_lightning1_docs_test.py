"""The tables of docs/lightning1.md are those of the code: `python compat_lightning1_docs_test.py --fix` writes them.

Each row of the table of arguments is an example, and its right side is the line that the code shows for the example.
"""

import pathlib
import re
import sys
import warnings

from lightning1 import PACKAGES, lines_of
from tutti.compat import deprecation
from tutti.compat.lightning1 import callback_arguments, devices, hook_signatures, hooks, old_names
from tutti.compat.lightning1 import renamed_arguments, trainer, trainer_arguments

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "lightning1.md"
PACKAGE = PACKAGES[1]

EXAMPLES = """gpus=8
gpus=-1
gpus="0,1"
gpus=[1, 3]
gpus=0
gpus=None
gpus=2, accelerator="ddp"
gpus=2, accelerator="dp"
gpus=8, distributed_backend="ddp2"
num_processes=2, accelerator="ddp_cpu"
accelerator="horovod"
gpus=4, plugins="ddp_sharded"
num_processes=2
auto_select_gpus=False
tpu_cores=8
hpus=8
ipus=4
strategy=None
strategy="ddp_fully_sharded"
strategy="fsdp_native"
devices=None
replace_sampler_ddp=False
amp_backend="native"
amp_backend="apex"
amp_level="O2"
resume_from_checkpoint="last.ckpt"
weights_summary=None
weights_summary="full"
progress_bar_refresh_rate=0
progress_bar_refresh_rate=20
process_position=1
checkpoint_callback=False
early_stop_callback=True
flush_logs_every_n_steps=10
log_gpu_memory="all"
max_steps=None
terminate_on_nan=True
stochastic_weight_avg=True
accumulate_grad_batches={0: 8}
track_grad_norm=2
profiler=True
weights_save_path="there"
truncated_bptt_steps=2
prepare_data_per_node=False
reload_dataloaders_every_epoch=True
move_metrics_to_cpu=True
multiple_trainloader_mode="min_size"
auto_lr_find=True
auto_scale_batch_size="binsearch"
automatic_optimization=False
enable_pl_optimizer=True""".split("\n")


def code(text):
    return f"`{text}`".replace("|", "\\|")


def code_if_call(text):
    """Code, unless words go on after it."""
    return code(text) if re.fullmatch(r"[\w.]+\(.*\)", text) else text


def today_of(example):
    """What the code says about an example, on a machine with GPUs."""
    deprecation._said.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            trainer_arguments.for_today(PACKAGE, eval(f"dict({example})"))
        except ValueError as error:
            return f"refused: {code_if_call(str(error).partition('Today: ')[2])}"
    says = [line.partition(" is of Lightning 1: ")[2] for line in lines_of(caught)]
    written = [code_if_call(text.removeprefix("write ")) for text in says if text.startswith("write ")]
    return ", ".join(written) or says[0]


def arguments():
    yield "| Trainer of Lightning 1 | today |"
    yield "|---|---|"
    for example in EXAMPLES:
        yield f"| {code(example)} | {today_of(example)} |"


def method_arguments():
    yield "| Lightning 1 | today |"
    yield "|---|---|"
    for (owner, method), names in renamed_arguments.RENAMED_ARGUMENTS.items():
        for old, today in names.items():
            yield f"| {code(f'{owner}.{method}({old}=…)')} | {code(f'{method}({today}=…)')} |"
    for old, today in trainer.ATTRIBUTES.items():
        yield f"| {code(f'trainer.{old}')} | {code(f'trainer.{today}')} |"


def callbacks():
    yield "| callback | arguments of Lightning 1 that are mapped |"
    yield "|---|---|"
    for name, rows in callback_arguments.CALLBACK_ARGUMENTS.items():
        yield f"| {code(name)} | {' '.join(code(argument) for argument, _, _ in rows)} |"


def hook_tables():
    yield "| hook of Lightning 1 | called | today |"
    yield "|---|---|---|"
    for name, (step, hook) in hooks.EPOCH_ENDS.items():
        when = f"at the end of an epoch, with what {code(step)} returned"
        yield f"| {code(name + '(outputs)')} | {when} | {code(hook + '()')} |"
    for name, step in hooks.STEP_ENDS.items():
        yield f"| {code(name + '(outputs)')} | with what {code(step)} returned, and may change it | {code(step)} |"
    for name, (when, *places) in hooks.RENAMED.items():
        yield f"| {code(name + '()')} | {when} {', '.join(map(code, places))} | these |"
    for name, place in hooks.NOT_CALLED.items():
        yield f"| {code(name)} | no; the line says so | {place} |"


def signatures():
    yield "| hook | arguments in Lightning 1 | today |"
    yield "|---|---|---|"
    for row in hook_signatures.HOOKS:
        today = code(", ".join(row.today)) if row.today else "none"
        yield f"| {code(row.name)} | {code(', '.join(row.old))} | {today} |"


def names():
    yield "| in Lightning 1 | today |"
    yield "|---|---|"
    modules = {}
    for row in old_names.OLD_NAMES:
        today = row.today if row.today else code(row.place.removeprefix("."))
        modules.setdefault((row.name, today, row.place is None), []).append(row.module)
    for (name, today, refused), found in modules.items():
        where = ", ".join(code(".".join(filter(None, (module, name)))) for module in found)
        yield f"| {where} | {'refused: ' if refused else ''}{today} |"


TABLES = {"arguments": arguments, "methods": method_arguments, "callbacks": callbacks, "hooks": hook_tables,
          "signatures": signatures, "names": names}
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(?=\n\n|\Z)", re.S)


def with_tables(text):
    """The page with the tables of the code."""
    return BLOCK.sub(lambda match: match[1] + "\n".join(TABLES[match[2]]()), text)


def test_the_tables_are_those_of_the_code(monkeypatch):
    monkeypatch.setattr(devices, "_has_gpu", lambda: True)
    text = PAGE.read_text(encoding="utf-8")
    assert {match[2] for match in BLOCK.finditer(text)} == TABLES.keys()
    assert with_tables(text) == text, "run python tests/python/compat_lightning1_docs_test.py --fix"


def test_every_argument_has_an_example():
    shown = {name for example in EXAMPLES for name in eval(f"dict({example})")}
    assert shown >= {row.name for row in trainer_arguments.ARGUMENTS} | {row[0] for row in trainer_arguments.VALUES}


if __name__ == "__main__":
    assert sys.argv[1:] == ["--fix"], __doc__
    devices._has_gpu = lambda: True
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
