/* compose.h - writes a mail from an agent's Markdown: plain text and HTML, and a file.
 *
 *      compose(&letter, &before, &after)   on a thread: cmark may take long for a hostile text
 *
 * GMime writes headers and parts, so a line break in a subject or a name ends no header.  A file is
 * not read here: its base64 goes between the two bufs while the mail is sent. */
#pragma once
#include "base/buf.h"

struct letter { /* borrowed for the call */
    struct str from, to;
    struct str name; /* to show beside @from; absent: none */
    struct str subject;
    struct str message_id;           /* with angle brackets, as the next two */
    struct str in_reply_to, root;    /* absent: it begins a thread */
    struct str text;                 /* Markdown */
    struct str file_name, file_type; /* absent type: no file */
    int64_t date_ms;
};

void compose(const struct letter *l, struct buf *ret_before, struct buf *ret_after);
/* The subject of a thread's first mail: the first line of @text, without Markdown's marks. */
void compose_subject(struct buf *out, struct str text);
/* Adds "Re: " unless @subject starts with it. */
void compose_reply_subject(struct buf *out, struct str subject);
