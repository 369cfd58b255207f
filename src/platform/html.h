/* html.h - turns an agent's Markdown into HTML, for platforms that show HTML.
 *
 *      html_from_markdown(&out, text)      on a thread: cmark may take long for a hostile text
 *
 * Adapters call it.  cmark-gfm changes tables of its own while it parses, so the calls of all
 * threads take turns. */
#pragma once
#include "base/buf.h"

/* Appends @markdown (GitHub's) as HTML.  Raw HTML in it is left out, and so are links with unsafe
 * schemes.  A line break stays one.  @tasks: "[ ]" at the start of an item becomes a check box. */
void html_from_markdown(struct buf *out, struct str markdown, bool tasks);
/* Appends @text with "&", "<", ">" and the quote escaped. */
void html_escape(struct buf *out, struct str text);
