"""What a Trainer has been told in Lightning 1's words and Lightning 2 has no argument for."""

import dataclasses
from typing import Any


@dataclasses.dataclass
class Settings:
    """Kept by the Trainer. A process that the Trainer is sent to runs it as this one does: loading one activates."""

    ckpt_path: Any = None  # for fit
    auto_lr_find: bool | str = False  # for tune
    auto_scale_batch_size: str | None = None  # for tune
    prepare_data_per_node: bool | None = None  # None: as the model and the data module say
    outputs_to_cpu: bool = False  # where what the steps return waits for the end of the epoch

    def __setstate__(self, state: dict[str, Any]) -> None:
        from tutti.compat.lightning1 import activate

        activate()
        vars(self).update(state)


def settings_of(trainer: Any) -> Settings:
    """The settings of ``trainer``; empty ones if it was made before activate()."""
    return vars(trainer).get("_lightning1") or Settings()
