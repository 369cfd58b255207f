/* compose.h - what a message to a person is made of: text, files, questions, templates.  Pure.
 *
 *      Markdown                 WhatsApp
 *      **bold**, __bold__       *bold*
 *      *italic*, _italic_       _italic_
 *      ~~strike~~               ~strike~
 *      # heading                *heading*
 *      [label](address)         label (address)
 *      * item, + item           - item
 *      ```lang                  ```
 *
 * Code, quotes, lists and everything else stay as they are.  outbound.c calls it. */
#pragma once
#include "base/buf.h"

struct prompt;

/* Appends @markdown as WhatsApp shows it. */
void wa_text_add(struct buf *out, struct str markdown);

#define WA_TEMPLATE 1000 /* UTF-16 units of the text in a template */
/* Appends @text as a template takes it: one line, single spaces.  False: it has more than
 * WA_TEMPLATE units, and nothing is appended. */
bool wa_parameter_add(struct buf *out, struct str text);

#define WA_CAPTION 1024 /* UTF-16 units of a caption, or of a question with buttons */
/* Appends the `interactive` object of a question: buttons for up to three short options, a list for
 * up to ten.  False: it fits neither, and its options have to be numbered. */
bool wa_question_add(struct buf *out, struct str question, const struct prompt *q);

struct wa_files {        /* a type of file that WhatsApp takes */
    const char *type;    /* MIME; with a slash at its end: all below it */
    const char *message; /* the type of message that carries it */
    const char *upload;  /* the type to upload as; NULL: @type */
    uint64_t max_bytes;
};
const struct wa_files *wa_files_of(struct str type); /* NULL: it takes no such files */
bool wa_files_captioned(const struct wa_files *f);   /* may carry a caption */
