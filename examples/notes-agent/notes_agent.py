#!/usr/bin/env python3
"""notes_agent.py - an agent that remembers notes, per chat. Python's standard library and nothing else.

    bellhop agent -- examples/notes-agent/notes_agent.py --file notes.db

Whatever you write is noted; /help says what else it can do. One process serves all chats: each line of input
names its conversation (session_key), and the notes of one are never seen in another.

A message that is handed over twice (the agent died over it) is noted once: its id is the note's.
"""
import argparse
import json
import os
import sqlite3
import sys
import time

HELP = """\
I keep notes for this chat. Write anything, and it is noted.
/notes – all of them
/find WORD – those with the word in them
/forget N – number N; /forget all – everything
/last – the newest one
/help – this"""

SCHEMA = """\
CREATE TABLE IF NOT EXISTS note (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    chat TEXT NOT NULL,
    message TEXT NOT NULL,
    author TEXT,
    at REAL NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (chat, message));
"""


class Notes:
    """The notes of all chats. People see them numbered 1, 2, 3… within their own."""

    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.executescript(SCHEMA)

    def add(self, chat, message, author, text):
        with self.db:
            self.db.execute("INSERT OR IGNORE INTO note (chat, message, author, at, text) VALUES (?, ?, ?, ?, ?)",
                            (chat, message, author, time.time(), text))
        return len(self.all(chat))

    def all(self, chat):
        return self.db.execute("SELECT n, at, author, text FROM note WHERE chat = ? ORDER BY n", (chat,)).fetchall()

    def remove(self, chat, number):
        notes = self.all(chat)
        if not 1 <= number <= len(notes):
            return None
        with self.db:
            self.db.execute("DELETE FROM note WHERE n = ?", (notes[number - 1][0],))
        return notes[number - 1][3]

    def clear(self, chat):
        with self.db:
            return self.db.execute("DELETE FROM note WHERE chat = ?", (chat,)).rowcount


def listing(notes, wanted=lambda text: True):
    lines = []
    for number, (_, at, author, text) in enumerate(notes, 1):
        if wanted(text):
            day = time.strftime("%d %b", time.localtime(at))
            lines.append(f"{number}. {text} ({day}{', ' + author if author else ''})")
    return "\n".join(lines)


def find(notes, chat, word):
    if not word:
        return "Find what? /find WORD"
    return listing(notes.all(chat), lambda text: word.lower() in text.lower()) or f"No note says “{word}”."


def forget(notes, chat, which):
    if which == "all":
        count = notes.clear(chat)
        return f"Forgotten: {count} note{'s' if count != 1 else ''}."
    text = notes.remove(chat, int(which)) if which.isdigit() else None
    return f"Forgotten: {text}" if text is not None else "Forget which? /forget N, with a number from /notes."


def answer(notes, message):
    chat, text = message["session_key"], message["text"].strip()
    command, _, rest = text.partition(" ")
    command, rest = command.lower().partition("@")[0], rest.strip()
    if command in ("/help", "/start"):
        return HELP
    if command == "/notes":
        return listing(notes.all(chat)) or "There are no notes here yet. Write something."
    if command == "/last":
        kept = notes.all(chat)
        return kept[-1][3] if kept else "There are no notes here yet."
    if command == "/find":
        return find(notes, chat, rest)
    if command == "/forget":
        return forget(notes, chat, rest)
    if command.startswith("/"):
        return f"I do not know {command}. /help says what I know."
    if not text:
        return "I can only note words."
    return f"Noted ({notes.add(chat, message['id'] or message['message_id'], message['user_name'], text)})."


def main():
    options = argparse.ArgumentParser(description="An agent that remembers notes, per chat.")
    options.add_argument("--file", default=os.environ.get("NOTES_FILE", "notes.db"), help="where they are kept")
    notes = Notes(options.parse_args().file)
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "message":
            print(json.dumps({"op": "send", "content": answer(notes, message), "done": True}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
