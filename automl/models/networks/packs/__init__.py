"""Packs: many small trials trained as one batched model, each with the numbers it has alone.

| word   | meaning |
|--------|---------|
| pack   | trials that train together; the rest of the package sees single trials (`pack.py`) |
| lane   | the place of one trial in a pack; when its trial ends, another takes the place |
| key    | the properties that the trials of a pack share, from their params (`family.PackKey`) |
| layout | the positions of the lanes' weights in one flat tensor (`layout.py`) |
| slot   | a layer, counted from the output, in all lanes that are deep enough |

`trainer.py` trains the lanes epoch by epoch, with `mlp_pass.py` and `optimizers.py`. It has two
engines: `mlp_trainer.py` for the built-in network, whose passes are written by hand
(`mlp_pass.py`), and `module_trainer.py` for any other, by `torch.func`. Start reading at `pack.py`.
"""
