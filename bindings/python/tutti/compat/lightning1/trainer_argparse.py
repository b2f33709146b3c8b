"""Trainer.add_argparse_args and its kin: a command line for the arguments of Lightning 1 and Lightning 2."""

import argparse
import inspect
import typing
from types import ModuleType
from typing import Any

from tutti.compat.deprecation import say_once

_TRUE, _FALSE, _NONE = ("true", "yes", "on"), ("false", "no", "off"), ("none",)


def value_of(text: str, types: tuple[type, ...]) -> Any:
    """``text`` of a command line as the first of ``types`` that it can be; the text itself otherwise."""
    if text.lower() in _NONE:
        return None
    if bool in types and text.lower() in _TRUE + _FALSE:
        return text.lower() in _TRUE
    for number in (one for one in (int, float) if one in types):
        try:
            return number(text)
        except ValueError:
            continue
    if str in types or not types:
        return text
    if bool in types and text in ("0", "1"):
        return text == "1"
    raise argparse.ArgumentTypeError(f"{text!r} is not of {' or '.join(one.__name__ for one in types)}")


def _types(annotation: Any) -> tuple[type, ...]:
    """The simple types in ``annotation``."""
    if typing.get_origin(annotation) is typing.Literal:
        return tuple({type(value) for value in typing.get_args(annotation)})
    inner = [found for one in typing.get_args(annotation) for found in _types(one)]
    return tuple(dict.fromkeys(inner)) if inner else (annotation,) if annotation in (bool, int, float, str) else ()


def _arguments(cls: type) -> dict[str, tuple[Any, tuple[type, ...]]]:
    """{name: (default, types)} for what ``cls`` takes, Lightning 1's Trainer arguments included."""
    from tutti.compat.lightning1.trainer_arguments import ARGUMENTS

    found = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            default = None if parameter.default is inspect.Parameter.empty else parameter.default
            found[name] = (default, _types(parameter.annotation))
    if any(base.__name__ == "Trainer" for base in cls.__mro__):
        found |= {row.name: (row.default, row.types) for row in ARGUMENTS}
    return found


def add_argparse_args(cls: type, parent_parser: argparse.ArgumentParser, **kwargs: Any) -> argparse.ArgumentParser:
    """Returns a parser with the arguments of ``parent_parser`` and those of ``cls``."""
    say_once(f"{cls.__name__}.add_argparse_args is of Lightning 1: add the arguments that you use by "
             f"parser.add_argument, and write {cls.__name__}(max_epochs=args.max_epochs, …)")
    parser = argparse.ArgumentParser(parents=[parent_parser], add_help=False)
    group = parser.add_argument_group(f"pl.{cls.__name__}")
    taken = {action.dest for action in parent_parser._actions}
    for name, (default, types) in _arguments(cls).items():
        if name not in taken:
            flag = {"nargs": "?", "const": True} if bool in types else {}
            group.add_argument(f"--{name}",
                               dest=name,
                               default=default,
                               type=lambda text, types=types: value_of(text, types),
                               **flag)
    return parser


def parse_argparser(cls: type, arg_parser: argparse.ArgumentParser | argparse.Namespace) -> argparse.Namespace:
    """The arguments of ``arg_parser``, parsed if they are not yet."""
    return arg_parser.parse_args() if isinstance(arg_parser, argparse.ArgumentParser) else arg_parser


def from_argparse_args(cls: type, args: argparse.Namespace | argparse.ArgumentParser, **kwargs: Any) -> Any:
    """Makes a ``cls`` with those of ``args`` that it takes; ``kwargs`` count more."""
    say_once(
        f"{cls.__name__}.from_argparse_args is of Lightning 1: write {cls.__name__}(max_epochs=args.max_epochs, …)")
    known = _arguments(cls)
    given = {name: value for name, value in vars(parse_argparser(cls, args)).items() if name in known}
    # What has its default says nothing; but a command line without --gpus said: on CPUs.
    named = {name: value for name, value in given.items() if value != known[name][0]} | kwargs
    if "gpus" in given and not {"gpus", "tpu_cores", "hpus", "accelerator", "devices"} & set(named):
        named["accelerator"] = "cpu"
    return cls(**named)


def patch(package: ModuleType) -> None:
    """Gives Trainer and LightningDataModule of ``package`` the class methods."""
    for owner in package.Trainer, package.LightningDataModule:
        for function in add_argparse_args, parse_argparser, from_argparse_args:
            setattr(owner, function.__name__, classmethod(function))
