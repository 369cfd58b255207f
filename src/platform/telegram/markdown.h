/* markdown.h - an agent's Markdown as Telegram text: what is seen, and entities that style it.
 *
 * Telegram takes styled text as MarkdownV2, as HTML, or as plain text beside a list of entities
 * (kind, offset, length).  We send the list: nothing is ever escaped, so nothing can be escaped
 * wrongly, the text is exactly what people see, and lengths need no second guess: Telegram counts
 * its limit and the offsets in UTF-16 units of the visible text, and so does this module.
 *
 *      struct md m = MD_INIT;
 *      md_parse(&m, content);
 *      for (struct md_part part = {0}; md_next(&m, 4096, &part);)
 *          md_write(&w, &m, &part, true);        // the keys "text" and "entities"
 *      md_done(&m);
 *
 * Understood: bold, italic, strike, spoiler (||x||), code, fences with language, links, images (as
 * links), headings (bold), lists, task lists, quotes, rules, tables (monospaced), escapes. Whatever
 * does not parse is text.  The work one text may make is counted (MD_MOST_WORK): where it is used
 * up, which takes thousands of marks or of short lines, what follows is text too.  So the longest
 * text of the worst kind takes a millisecond.  What comes out obeys the rules of the Bot API for
 * entities: inside the text, never empty, properly nested, never inside themselves, nothing inside
 * code, code only inside quotes, no quote or link inside a link.
 */
#pragma once
#include "base/buf.h"
#include "base/jw.h"

#define MD_MAX_ENTITIES 100   /* of one message; Telegram takes no more */
#define MD_MOST_ENTITIES 4096 /* of one text, however many messages: what follows is plain */
#define MD_MOST_WORK 40000    /* the same; a mark or a piece of text is 1, a line 3 */

enum md_kind { MD_BOLD, MD_ITALIC, MD_STRIKE, MD_SPOILER, MD_LINK, MD_CODE, MD_PRE, MD_QUOTE };
#define MD_STYLES 4 /* the kinds up to MD_SPOILER may overlap anything but code */

struct md_entity {
    enum md_kind kind;
    size_t off, len;   /* UTF-16 units of the text */
    size_t arg, n_arg; /* in md.args: the URL of a link, the language of a fence */
};

struct md {
    struct buf text; /* what people see; UTF-8 */
    size_t units;    /* its length in UTF-16 units */
    struct buf args;
    struct md_entity *entities; /* owned; by offset, outer ones first */
    size_t n, cap;
    size_t work; /* done so far, about 20 ns each; up to MD_MOST_WORK */
};
#define MD_INIT ((struct md){0})

/* Fill @m, which is empty.  @markdown is valid UTF-8. */
void md_parse(struct md *m, struct str markdown);
void md_done(struct md *m); /* usable again afterwards */

struct md_part {     /* one message's share of the text */
    size_t from, to; /* bytes */
    size_t off, len; /* UTF-16 units */
};

/* The next part of at most @limit units, behind *@part; false: that was all.  Cuts at an empty
 * line, the end of a line or a space when one is near, never inside a code point, and leaves out
 * the white space around a cut.  Entities that are cut go on in the next part. */
bool md_next(const struct md *m, size_t limit, struct md_part *part);
void md_write(struct jw *w, const struct md *m, const struct md_part *part, bool styled);
/* The same as "caption" and "caption_entities". */
void md_write_caption(struct jw *w, const struct md *m, const struct md_part *part, bool styled);
void md_write_entities(struct jw *w, const struct md *m, const struct md_part *part); /* alone */

/* ---- between markdown.c, md_inline.c and md_text.c ---- */

struct md_run { /* what is open while text is written */
    struct md *md;
    struct md_scratch *scratch; /* borrowed: md_inline() uses the same room again and again */
    unsigned depth[MD_STYLES];
    size_t start[MD_STYLES]; /* of the outermost of each */
};

void md_add(struct md *m, struct str text);
void md_entity_add(struct md *m, enum md_kind kind, size_t off, struct str arg); /* up to here */
void md_style_open(struct md_run *r, enum md_kind kind);
void md_style_close(struct md_run *r, enum md_kind kind);
void md_add_code(struct md_run *r, struct str code); /* styles pause around it */
void md_inline(struct md_run *r, struct str s);      /* a paragraph, a heading, an item */

struct md_scratch { /* zeroed at first */
    struct tok *toks;
    size_t *stack;
    uint32_t *brackets; /* two for each byte of the longest paragraph with a bracket yet */
    size_t cap, cap_stack, cap_brackets;
};
void md_scratch_done(struct md_scratch *t);
