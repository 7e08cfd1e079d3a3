import time

from tqdm import tqdm

bar = tqdm(range(1, 41), desc="training")
for step in bar:
    time.sleep(0.05)
    bar.set_postfix(loss=1 / step)
