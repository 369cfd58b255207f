#!/usr/bin/env python3
"""dice.py - an agent in Python: it rolls dice, and lets you watch them roll.

    bellhop agent --until-done -- examples/agents/dice.py

Nothing here knows about networks: messages come in on stdin, answers go out on stdout.
"""
import json
import random
import re
import sys
import time


def say(**order):
    print(json.dumps(order), flush=True)


def roll(text):
    asked = re.fullmatch(r"/roll(?: (\d{1,2})?d(\d{1,3}))?", text.strip())
    if not asked:
        return None
    count, sides = int(asked[1] or 1), int(asked[2] or 6)
    return [random.randint(1, max(sides, 1)) for _ in range(max(count, 1))]


for line in sys.stdin:
    message = json.loads(line)
    if message["type"] != "message":
        continue  # an interrupt comes with SIGINT, which ends us; the next message finds a new one
    dice = roll(message["text"])
    if dice is None:
        say(op="send", content="/roll, /roll d20, /roll 3d6 - and I roll.")
    else:
        say(op="typing")
        say(op="send", content="Rolling…")
        time.sleep(0.3)
        say(op="edit", content=f"{' + '.join(map(str, dice))} = {sum(dice)}")  # the message sent last
    say(op="done")
