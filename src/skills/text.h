/* text.h - reading and rewriting the header lines of a skill's body, byte for byte as the stores of
 * the Skillscript runtime do.
 *
 * A body is free text with lines such as `# Status: Draft` anywhere in it.  Its hash is part of the
 * contract, so what is changed, and what is not, is exact: a header's value may stand on a later
 * line, blank lines behind a rewritten one disappear, and white space is what JavaScript calls so.
 * Pure functions; everything returned is borrowed from the body. */
#pragma once
#include "base/buf.h"
#include "base/jw.h"
#include "skills/skills.h"

/* A header found in a body, as offsets:
 *
 *      # Key :  value text  \n\n     next line
 *      ^hash    ^value    ^value_end ^end   (or the end of the body; before the last line break of
 *                                            the white space behind the value) */
struct skill_header {
    size_t hash, value, value_end, end;
};

/* The first `# Key: value` at the start of a line.  @indented: white space before the # is fine. */
bool skill_header_find(struct str body, struct str key, bool indented, struct skill_header *ret_h);

/* The first line `# Key:`, whatever follows, even nothing: from its # to where the line ends. */
bool skill_header_line(struct str body, struct str key, size_t *ret_hash, size_t *ret_end);

/* What the body says of its status; false: nothing that counts, which means Draft.  @ret_token:
 * what follows the word, absent when nothing does; may be NULL. */
bool skill_status_read(struct str body, enum skill_status *ret_s, struct str *ret_token);
enum skill_status skill_status_of(struct str body); /* Draft when it says nothing */

/* The body with its status line set to @s.  Afterwards skill_status_read() finds @s. */
void skill_status_rewrite(struct str body, enum skill_status s, struct buf *out);
/* The gentler rewrite of writes that must land as a Draft: only the status line's own text
 * changes. */
void skill_force_draft(struct str body, struct buf *out);

/* Members of SkillMeta that are projections of the body, each only when there is something: tags,
 * vars, returns.  Its type is what comes back: "data" or "procedural". */
struct str skill_project(struct str body, struct jw *w);
