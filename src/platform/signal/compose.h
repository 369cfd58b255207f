/* compose.h - what a message to people is made of: plain text and style ranges.  Pure.
 *
 *      Markdown             Signal
 *      **bold**, # heading  BOLD
 *      *italic*             ITALIC
 *      ~~strike~~           STRIKETHROUGH
 *      ||spoiler||          SPOILER
 *      `code`, fences       MONOSPACE
 *      [label](address)     label (address)
 *      > quote              > quote
 *
 * Ranges count UTF-16 units.  outbound.c calls it. */
#pragma once
#include "platform/markdown.h"

#define SIGNAL_TEXT 8000 /* UTF-16 units of one message */
#define SIGNAL_STYLES 250

/* Fills @m, which is empty, with the text as Signal shows it. */
void signal_text(struct md *m, struct str markdown);
/* Writes "message", and "textStyles" if there are any. */
void signal_write_text(struct jw *w, const struct md *m, const struct md_part *part);
