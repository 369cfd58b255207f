#!/bin/sh
# clock.sh - an agent in shell: read a line, print a line.
#
#     bellhop agent -- examples/agents/clock.sh
#
# The text is taken out of the JSON as it stands, escapes and all, and put into JSON again as it stands, so
# nothing needs unescaping and nothing a person writes is ever run.
while IFS= read -r line; do
    case $line in
    '{"type":"message"'*) ;;
    *) continue ;; # an interrupt: this agent is never busy for long
    esac
    text=$(printf '%s\n' "$line" | sed -n 's/.*,"text":"\(\([^"\\]\|\\.\)*\)","message_id":.*/\1/p')
    case $text in
    /help) echo 'I know the time: /time, /date, /uptime. Everything else I repeat.' ;;
    /time) date +%H:%M:%S ;;
    /date) date '+%A, %d %B %Y' ;;
    /uptime) echo "This machine is up since $(uptime -s)." ;;
    *) printf '{"op":"send","content":"You said: %s","done":true}\n' "$text" ;;
    esac
done
