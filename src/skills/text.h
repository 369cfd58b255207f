/* text.h - reads and rewrites the header lines of a skill's body, byte for byte as the Skillscript
 * runtime does.
 *
 * A body is free text with lines such as `# Status: Draft` anywhere in it.  The hash of the body is
 * part of the contract, so every rewrite must match the runtime's exactly.  A header's value may be
 * on a later line, a rewrite removes the blank lines after the header, and white space is
 * JavaScript's.  All functions are pure; returned strings are borrowed from the body. */
#pragma once
#include "base/buf.h"
#include "base/jw.h"
#include "skills/skills.h"

/* The offsets of a header in a body:
 *
 *      # Key :  value text  \n\n     next line
 *      ^hash    ^value    ^value_end ^end   (or the end of the body; before the last line break of
 *                                            the white space behind the value) */
struct skill_header {
    size_t hash, value, value_end, end;
};

/* The first `# Key: value` at the start of a line.  @indented: allows white space before the #. */
bool skill_header_find(struct str body, struct str key, bool indented, struct skill_header *ret_h);

/* The first line `# Key:`, with any value or none: the offsets of its # and of the line's end. */
bool skill_header_line(struct str body, struct str key, size_t *ret_hash, size_t *ret_end);

/* Reads the status from the body.  False: no valid status line, which means Draft.  @ret_token (may
 * be NULL): the text after the status word; absent if there is none. */
bool skill_status_read(struct str body, enum skill_status *ret_s, struct str *ret_token);
enum skill_status skill_status_of(struct str body); /* Draft without a valid status line */

/* Appends the body with its status line set to @s.  skill_status_read() of the result finds @s. */
void skill_status_rewrite(struct str body, enum skill_status s, struct buf *out);
/* Appends the body as a Draft, and changes only the text of the status line. */
void skill_force_draft(struct str body, struct buf *out);

/* Writes the members of SkillMeta that derive from the body: tags, vars, returns; empty ones are
 * left out.  Returns the type, "data" or "procedural". */
struct str skill_project(struct str body, struct jw *w);
