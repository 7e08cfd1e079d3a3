python -m trainer.main --epochs 2
