/* markdown.h - turns an agent's Markdown into plain text and entities, as Telegram and Signal have
 * them.
 *
 *      struct md m = MD_INIT;
 *      md_parse(&m, content);
 *      for (struct md_part part = {0}; md_next(&m, 4096, &part);)
 *          md_write(&w, &m, &part, true);        // the keys "text" and "entities"
 *      md_done(&m);
 *
 * The Telegram and Signal adapters call it for every text that they send.  Pure: no clock, no
 * network.
 *
 * An entity is a kind, an offset and a length.  Telegram also takes MarkdownV2 and HTML, but both
 * need escapes, which can go wrong.  With entities the text is exactly what people see.  Telegram
 * counts limits and offsets in UTF-16 units of the visible text, and so does this module.
 *
 * Understood: bold, italic, strike, spoiler (||x||), code, fences with language, links, images (as
 * links), headings (bold), lists, task lists, quotes, rules, tables (monospaced), escapes.
 * Everything else stays text.
 *
 * The work for one text is bounded (MD_MOST_WORK).  After thousands of marks or short lines the
 * budget is spent and the rest stays text.  So the worst text takes about a millisecond.
 *
 * Entities obey the rules of the Bot API: inside the text, never empty, properly nested, never
 * inside their own kind, nothing inside code, code only inside quotes, no quote or link inside a
 * link.
 */
#pragma once
#include "base/buf.h"
#include "base/jw.h"

#define MD_MAX_ENTITIES 100   /* of one message; Telegram's limit */
#define MD_MOST_ENTITIES 4096 /* of one text in all its messages; the rest is plain */
#define MD_MOST_WORK 40000    /* of one text; a mark or a piece of text costs 1, a line 3 */

enum md_kind { MD_BOLD, MD_ITALIC, MD_STRIKE, MD_SPOILER, MD_LINK, MD_CODE, MD_PRE, MD_QUOTE };
#define MD_STYLES 4 /* the kinds up to MD_SPOILER may overlap anything but code */

struct md_entity {
    enum md_kind kind;
    size_t off, len;   /* UTF-16 units of the text */
    size_t arg, n_arg; /* in md.args: the URL of a link, the language of a fence */
};

struct md {
    struct buf text; /* the visible text; UTF-8 */
    size_t units;    /* its length in UTF-16 units */
    struct buf args;
    struct md_entity *entities; /* owned; by offset, outer ones first */
    size_t n, cap;
    size_t work; /* spent so far, about 20 ns each; at most MD_MOST_WORK */
};
#define MD_INIT ((struct md){0})

/* Fills @m, which is empty.  @markdown is valid UTF-8. */
void md_parse(struct md *m, struct str markdown);
void md_done(struct md *m); /* @m is empty again */

struct md_part {     /* the part of the text that one message carries */
    size_t from, to; /* bytes */
    size_t off, len; /* UTF-16 units */
};

/* Moves @part to the next part, of at most @limit units; false: no text is left.  Cuts at an empty
 * line, a line break or a space if one is near, never inside a code point.  White space around a
 * cut is left out.  An entity that is cut continues in the next part. */
bool md_next(const struct md *m, size_t limit, struct md_part *part);
void md_write(struct jw *w, const struct md *m, const struct md_part *part, bool styled);
/* The same as "caption" and "caption_entities". */
void md_write_caption(struct jw *w, const struct md *m, const struct md_part *part, bool styled);
void md_write_entities(struct jw *w, const struct md *m, const struct md_part *part); /* alone */

/* ---- between markdown.c, md_inline.c and md_text.c ---- */

struct md_run { /* the open styles while text is written */
    struct md *md;
    struct md_scratch *scratch; /* borrowed; md_inline() reuses it */
    unsigned depth[MD_STYLES];
    size_t start[MD_STYLES]; /* UTF-16 offset of the outermost of each */
};

void md_add(struct md *m, struct str text);
void md_entity_add(struct md *m, enum md_kind kind, size_t off,
                   struct str arg); /* from @off to the end */
void md_style_open(struct md_run *r, enum md_kind kind);
void md_style_close(struct md_run *r, enum md_kind kind);
void md_add_code(struct md_run *r, struct str code); /* interrupts the open styles */
void md_inline(struct md_run *r, struct str s);      /* a paragraph, a heading, an item */

struct md_scratch { /* zeroed at first */
    struct tok *toks;
    size_t *stack;
    uint32_t *brackets; /* two per byte of the longest paragraph with a bracket so far */
    size_t cap, cap_stack, cap_brackets;
};
void md_scratch_done(struct md_scratch *t);
