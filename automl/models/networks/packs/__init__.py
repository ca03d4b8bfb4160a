"""Packs: many small trials trained as one batched model, each with the numbers it has alone.

| word   | is |
|--------|----|
| pack   | trials that train together; to the rest of the house still single trials (`pack.py`) |
| lane   | the place of one trial in a pack; when its trial ends, another takes it |
| key    | what trials must have in common to be a pack, known by arithmetic on params
(`family.py`) |
| layout | where the lanes' weights stand in one flat tensor (`layout.py`) |
| slot   | a layer, counted from the output, in all lanes that are so deep |

`trainer.py` trains the lanes epoch by epoch, with `loss.py` and `optimizers.py`. There are two
engines under it: `mlp_trainer.py` for the built-in network, whose passes are written by hand
(`mlp_pass.py`), and `module_trainer.py` for any other, by `torch.func`. Start reading at `pack.py`.
"""
